#pragma once

#include "fuzz/chooser.h"

/// How the operands of an op are chosen. Names say what x, y, z, w are.
namespace tandem::fuzz::patterns {

// one tensor
bool floating(Chooser& chooser, Statement& statement);
bool numeric(Chooser& chooser, Statement& statement);
bool anything(Chooser& chooser, Statement& statement);
bool integral(Chooser& chooser, Statement& statement);
bool boolean(Chooser& chooser, Statement& statement);
bool complex(Chooser& chooser, Statement& statement);
bool differentiable(Chooser& chooser, Statement& statement);  // floating, requires grad

// several, broadcastable
bool floating_pair(Chooser& chooser, Statement& statement);
bool numeric_pair(Chooser& chooser, Statement& statement);
bool complex_pair(Chooser& chooser, Statement& statement);  // y can be expanded to x
bool integral_pair(Chooser& chooser, Statement& statement);
bool same_sizes(Chooser& chooser, Statement& statement);  // x and y: floating, same sizes and dtype
bool floating_triple(Chooser& chooser, Statement& statement);
bool choice(Chooser& chooser, Statement& statement);     // x a mask, y and z floating
bool with_mask(Chooser& chooser, Statement& statement);  // x floating, y a mask of its sizes

// with dimensions: i, and another one j
bool floating_dim(Chooser& chooser, Statement& statement);
bool anything_dim(Chooser& chooser, Statement& statement);  // k: a position in it
bool floating_dims(Chooser& chooser, Statement& statement);
bool anything_dims(Chooser& chooser, Statement& statement);

// products and layers
bool matrix(Chooser& chooser, Statement& statement);
bool square(Chooser& chooser, Statement& statement);
bool matrices(Chooser& chooser, Statement& statement);       // x[n,k] y[k,m], z[n,m] or [m]
bool batches(Chooser& chooser, Statement& statement);        // x[b,n,k] y[b,k,m] z[b,n,m]
bool vectors(Chooser& chooser, Statement& statement);        // x[n] y[n]
bool matrix_vector(Chooser& chooser, Statement& statement);  // x[n,k] y[k] z[n]
bool outer(Chooser& chooser, Statement& statement);          // x[n] y[m] z[n,m]
bool linear(Chooser& chooser, Statement& statement);         // x[b,k] y[m,k] z[m]
bool convolution1d(Chooser& chooser, Statement& statement);
bool convolution2d(Chooser& chooser, Statement& statement);
bool image(Chooser& chooser, Statement& statement);          // x[b,c,h,w]
bool classes(Chooser& chooser, Statement& statement);        // x[n,c], y[n] indices of classes
bool last_dim(Chooser& chooser, Statement& statement);       // x[...,n] y[n] z[n], s = {n}
bool channels(Chooser& chooser, Statement& statement);       // x[b,2c,l] y[2c] z[2c], i = 2
bool channel_state(Chooser& chooser, Statement& statement);  // x[b,c] y[c] z[c] without grad
bool attention(Chooser& chooser, Statement& statement);

// indices
bool index_dim(Chooser& chooser, Statement& statement);  // x, y indices [k] of dimension i
bool index_like(Chooser& chooser,
                Statement& statement);  // x, y indices like x in dimension i, z like x
bool index_rows(Chooser& chooser, Statement& statement);  // x[n,d], y indices of rows
bool index_source(Chooser& chooser,
                  Statement& statement);  // x, y indices [k] of dimension 0, z to put there

// lists, sizes
bool list(Chooser& chooser, Statement& statement);         // xs: same sizes and dtype; i: dimension
bool other_sizes(Chooser& chooser, Statement& statement);  // x, s: sizes with as many elements
bool wider_sizes(Chooser& chooser, Statement& statement);  // x, s: sizes to expand to
bool permutation(Chooser& chooser, Statement& statement);  // x, s: an order of dimensions
bool range(Chooser& chooser, Statement& statement);        // x, i: dimension, j..k: part of it
bool strided(Chooser& chooser, Statement& statement);      // x, s: sizes; i, j: strides, k: offset
bool sizes_only(Chooser& chooser, Statement& statement);
bool spread(Chooser& chooser, Statement& statement);  // x anything, y large, both floating
bool scalar(Chooser& chooser, Statement& statement);  // c, t: a number of any dtype
bool with_scalar(Chooser& chooser,
                 Statement& statement);  // x: 16 bits; y: no dimensions, any dtype
bool unfit(Chooser& chooser,
           Statement& statement);  // x: any number; t: a dtype, c: mostly not of it
bool with_number(Chooser& chooser, Statement& statement);  // x: 16 bits; c, t: as in scalar
bool pairs(Chooser& chooser, Statement& statement);        // x whose last size is 2, dense

// writes: x is written
bool write(Chooser& chooser, Statement& statement);
bool write_numeric(Chooser& chooser, Statement& statement);
bool write_pair(Chooser& chooser, Statement& statement);
bool write_scalar(Chooser& chooser, Statement& statement);  // y: no dimensions, any dtype
bool write_triple(Chooser& chooser, Statement& statement);
bool write_masked(Chooser& chooser, Statement& statement);  // y a mask, z of one element
bool write_dim(Chooser& chooser, Statement& statement);     // i: dimension, y: like x
bool write_rows(Chooser& chooser, Statement& statement);  // y indices [k] of dimension 0, z values
bool write_like(Chooser& chooser,
                Statement& statement);  // y indices like x in dimension i, z values
bool write_product(Chooser& chooser, Statement& statement);  // x[n,m] y[n,k] z[k,m]
bool write_in_backward(Chooser& chooser,
                       Statement& statement);              // x without grad, y with grad
bool write_first(Chooser& chooser, Statement& statement);  // the first element of dimension i
bool write_list(Chooser& chooser, Statement& statement);   // xs: each is written
bool write_complex(Chooser& chooser, Statement& statement);
bool write_complex_pair(Chooser& chooser, Statement& statement);  // y can be expanded to x
bool reshapable(Chooser& chooser, Statement& statement);          // x is a matrix and no view

// autograd
bool root_and_input(Chooser& chooser, Statement& statement);  // x depends on y
bool fresh_leaf(Chooser& chooser, Statement& statement);      // a leaf that was made inside

}  // namespace tandem::fuzz::patterns
