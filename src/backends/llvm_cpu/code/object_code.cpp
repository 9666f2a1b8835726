#include "backends/llvm_cpu/code/object_code.h"

#include "backends/llvm_cpu/emit/emit_kernel.h"
#include "base/error.h"

#include <llvm/Analysis/AliasAnalysis.h>
#include <llvm/Analysis/AssumptionCache.h>
#include <llvm/Analysis/BasicAliasAnalysis.h>
#include <llvm/Analysis/BlockFrequencyInfo.h>
#include <llvm/Analysis/BranchProbabilityInfo.h>
#include <llvm/Analysis/LoopInfo.h>
#include <llvm/Analysis/MemorySSA.h>
#include <llvm/Analysis/OptimizationRemarkEmitter.h>
#include <llvm/Analysis/PostDominators.h>
#include <llvm/Analysis/ProfileSummaryInfo.h>
#include <llvm/Analysis/ScalarEvolution.h>
#include <llvm/Analysis/TargetLibraryInfo.h>
#include <llvm/Analysis/TargetTransformInfo.h>
#include <llvm/IR/Dominators.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/PassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Transforms/InstCombine/InstCombine.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/LICM.h>
#include <llvm/Transforms/Scalar/LoopPassManager.h>
#include <llvm/Transforms/Scalar/LoopRotation.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>
#include <llvm/Transforms/Utils/Mem2Reg.h>

#include <mutex>
#include <utility>

namespace tandem::backends::llvm_cpu {

struct CodeGenerator::Machine {
  std::unique_ptr<llvm::TargetMachine> target;
};

namespace {

void prepare_llvm_once() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    // Loop strength reduction takes 40 % of the time of generating a reduction and gains nothing.
    // The option is global, but this LLVM is ours alone.
    auto& options = llvm::cl::getRegisteredOptions();
    if (auto option = options.find("disable-lsr"); option != options.end())
      static_cast<llvm::cl::opt<bool>*>(option->second)->setValue(true);
  });
}

const char* processor(InstructionSet set) {
  switch (set) {
    case InstructionSet::Avx512:
      return "x86-64-v4";
    case InstructionSet::Avx2:
      return "x86-64-v3";
    case InstructionSet::Baseline:
      break;
  }
  return "x86-64";
}

/// The IR is in vector form already, so a handful of passes is enough.
llvm::FunctionPassManager passes() {
  llvm::FunctionPassManager list;
  list.addPass(llvm::PromotePass());
  list.addPass(llvm::EarlyCSEPass(/*UseMemorySSA=*/true));
  list.addPass(llvm::InstCombinePass());
  list.addPass(llvm::SimplifyCFGPass());
  llvm::LoopPassManager loops;
  loops.addPass(llvm::LoopRotatePass());
  loops.addPass(llvm::LICMPass(llvm::LICMOptions()));
  list.addPass(llvm::createFunctionToLoopPassAdaptor(std::move(loops), /*UseMemorySSA=*/true));
  list.addPass(llvm::InstCombinePass());
  list.addPass(llvm::SimplifyCFGPass());
  return list;
}

void optimise(llvm::Module& module, llvm::TargetMachine& target) {
  llvm::LoopAnalysisManager lam;
  llvm::FunctionAnalysisManager fam;
  llvm::ModuleAnalysisManager mam;
  // By hand and not by PassBuilder, which would link all of LLVM's passes: 7 MiB.
  llvm::TargetLibraryInfoImpl library(target.getTargetTriple());
  library.disableAllFunctions();
  fam.registerPass([&] { return llvm::TargetLibraryAnalysis(library); });
  fam.registerPass([&] { return target.getTargetIRAnalysis(); });
  fam.registerPass([] {
    llvm::AAManager aliases;
    aliases.registerFunctionAnalysis<llvm::BasicAA>();
    return aliases;
  });
  fam.registerPass([] { return llvm::BasicAA(); });
  fam.registerPass([] { return llvm::AssumptionAnalysis(); });
  fam.registerPass([] { return llvm::DominatorTreeAnalysis(); });
  fam.registerPass([] { return llvm::PostDominatorTreeAnalysis(); });
  fam.registerPass([] { return llvm::LoopAnalysis(); });
  fam.registerPass([] { return llvm::ScalarEvolutionAnalysis(); });
  fam.registerPass([] { return llvm::MemorySSAAnalysis(); });
  fam.registerPass([] { return llvm::BranchProbabilityAnalysis(); });
  fam.registerPass([] { return llvm::BlockFrequencyAnalysis(); });
  fam.registerPass([] { return llvm::OptimizationRemarkEmitterAnalysis(); });
  fam.registerPass([] { return llvm::PassInstrumentationAnalysis(nullptr); });
  fam.registerPass([&] { return llvm::ModuleAnalysisManagerFunctionProxy(mam); });
  fam.registerPass([&] { return llvm::LoopAnalysisManagerFunctionProxy(lam); });
  lam.registerPass([] { return llvm::PassInstrumentationAnalysis(nullptr); });
  lam.registerPass([&] { return llvm::FunctionAnalysisManagerLoopProxy(fam); });
  mam.registerPass([] { return llvm::PassInstrumentationAnalysis(nullptr); });
  mam.registerPass([] { return llvm::ProfileSummaryAnalysis(); });
  mam.registerPass([&] { return llvm::FunctionAnalysisManagerModuleProxy(fam); });
  llvm::ModulePassManager all;
  all.addPass(llvm::createModuleToFunctionPassAdaptor(passes()));
  all.run(module, mam);
}

std::unique_ptr<llvm::Module> build(const Schedule& schedule, const std::string& symbol,
                                    llvm::LLVMContext& context, llvm::TargetMachine& target) {
  std::unique_ptr<llvm::Module> module = emit_kernel(schedule, symbol, context);
  module->setTargetTriple(target.getTargetTriple().str());
  module->setDataLayout(target.createDataLayout());
#ifndef NDEBUG
  std::string broken;
  llvm::raw_string_ostream text(broken);
  TANDEM_CHECK(!llvm::verifyModule(*module, &text), "lower", "bad LLVM IR: ", broken);
#endif
  optimise(*module, target);
  return module;
}

void write(llvm::Module& module, llvm::TargetMachine& target, llvm::CodeGenFileType type,
           llvm::SmallVectorImpl<char>& bytes) {
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager manager;
  const bool failed = target.addPassesToEmitFile(manager, stream, nullptr, type, true);
  TANDEM_CHECK(!failed, "lower", "LLVM has no code generator for this machine");
  manager.run(module);
}

}  // namespace

CodeGenerator::CodeGenerator(InstructionSet set) : machine_(std::make_unique<Machine>()) {
  prepare_llvm_once();
  const std::string triple = "x86_64-unknown-linux-gnu";
  std::string problem;
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, problem);
  TANDEM_CHECK(target, "lower", "LLVM does not know ", triple, ": ", problem);
  llvm::TargetOptions options;
  // Eager rounds after each operation: a product and a sum are never contracted.
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  machine_->target.reset(target->createTargetMachine(triple, processor(set), "", options,
                                                     llvm::Reloc::PIC_, llvm::CodeModel::Small,
                                                     llvm::CodeGenOptLevel::Default, true));
}

CodeGenerator::~CodeGenerator() = default;
CodeGenerator::CodeGenerator(CodeGenerator&&) noexcept = default;
CodeGenerator& CodeGenerator::operator=(CodeGenerator&&) noexcept = default;

ObjectCode CodeGenerator::object(const Schedule& schedule, const std::string& symbol) {
  // A context keeps its types and constants for good, so each kernel has one of its own.
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module = build(schedule, symbol, context, *machine_->target);
  llvm::SmallVector<char, 0> bytes;
  write(*module, *machine_->target, llvm::CodeGenFileType::ObjectFile, bytes);
  return {symbol, {bytes.begin(), bytes.end()}};
}

KernelText CodeGenerator::text(const Schedule& schedule, const std::string& symbol) {
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module = build(schedule, symbol, context, *machine_->target);
  KernelText result;
  {
    llvm::raw_string_ostream stream(result.llvm_ir);
    module->print(stream, nullptr);
  }
  llvm::SmallVector<char, 0> bytes;
  write(*module, *machine_->target, llvm::CodeGenFileType::AssemblyFile, bytes);
  result.assembly.assign(bytes.begin(), bytes.end());
  return result;
}

}  // namespace tandem::backends::llvm_cpu
