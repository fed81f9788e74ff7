"""Signs written at the start of a program, by readers of checkpoints, and by the C library at a crash. Data."""

from __future__ import annotations

from .signatures import FILE_TIMER, GENERIC, SPECIFIC, TYPED, Role, Signature

_R = Role.ROOT
_S = Signature

# fmt: off
START = (
    _S(FILE_TIMER, "rank_hang", _R, SPECIFIC,
       r"^remuster: the timer '.{0,512}' of this rank expired", "remuster agent/file_timer.py",
       "remuster: the timer 'epoch' of this rank expired: SIGKILL was sent",
       "the timer of this rank expired"),
    _S("usage", "user_args", _R, SPECIFIC,
       r": error: (?:unrecognized arguments|the following arguments are required|argument .{1,200}: |ambiguous option|"
       r"one of the arguments)|^Error: (?:No such option|Missing (?:option|argument|parameter)|Invalid value for|"
       r"Got unexpected extra)|Could not override '|not used by the HfArgumentParser|Unknown command line flag '|"
       r"function received no value for the required argument|ERROR: Could not consume arg|"
       r"is not equal to micro_batch_per_gpu \* gradient_acc_step|world size \(\d+\) is not divisible by|"
       r"DeepSpeedConfigError",
       "Python argparse.py, click exceptions.py, hydra, fire; DeepSpeed config.py, Megatron arguments.py",
       "train.py: error: unrecognized arguments: --local-rank=0", "train.py: error: could not reach the server"),
    _S("no-script", "user_args", _R, SPECIFIC,
       r"can't open file '.{1,400}': \[Errno \d+\]|can't find '__main__' module in", "Python Modules/main.c",
       "python: can't open file '/tmp/train.py': [Errno 2] No such file or directory",
       "OSError: can't open data '/tmp/train.bin'"),
    _S("not-executable", "user_permission", _R, SPECIFIC,
       r"\b(?:sh|bash|line \d+|exec|env|execve\(\)): .{1,200}: Permission denied$|"
       r"permission denied while trying to connect to the [Dd]ocker",
       "bash execute_cmd.c, dash; slurmstepd task.c; docker client",
       "/bin/bash: ./train.sh: Permission denied", "bash: warning: setlocale: LC_ALL: cannot change locale"),
    _S("ssh-key", "user_auth", _R, SPECIFIC, r"Permission denied \((?:publickey|password|gssapi)|"
       r"^Host key verification failed\.",
       "openssh sshconnect2.c",
       "u@node-a2: Permission denied (publickey,password).", "/bin/bash: ./train.sh: Permission denied"),
    _S("no-command", "user_args", _R, SPECIFIC,
       r"\b(?:sh|bash|line \d+|exec|env): .{1,200}: (?:command not found|not found|No such file or directory)$|"
       r"exec: .{1,200}: (?:executable file )?not found",
       "bash execute_cmd.c, dash", "/bin/bash: line 1: pyhton: command not found",
       "bash: warning: setlocale: LC_ALL: cannot change locale"),
    _S("no-module", "user_import", _R, SPECIFIC,
       r"(?:python[\d.]*|^\S{1,200}): (?:No module named|Error while finding module specification for)",
       "Python runpy.py", "/opt/env/bin/python: No module named trainer.main",
       "hint: a module named trainer.main is registered"),
    _S("library", "env_library_mismatch", _R, SPECIFIC,
       r"undefined symbol: |version `[A-Z]{2,12}_[\d.]+' not found|cannot open shared object file|"
       r"NCCL version mismatch|"
       r"compiled using NumPy 1\.x cannot be run|binary incompatibility|cannot allocate memory in static TLS block|"
       r"wrong ELF class|invalid ELF header|incompatible with the installed (?:torch|CUDA)|"
       r"operator \w{1,40}::\w{1,40} does not exist|this version of jax requires version|"
       r"newer than and incompatible with|compiled against ABI version|only supports \w{3,12} GPUs or newer|"
       r"is required for a normal functioning of this module, but found|CUDAMismatchException|"
       r"unsatisfied condition: (?:cuda|driver|arch)|Unable to load any of \{lib|Cannot load symbol cudnn|"
       r"MKL_THREADING_LAYER=\w{2,8} is incompatible with|"
       r"(?:Error|Exception): .{0,80}CUDA_HOME (?:environment variable is not set|does not exist)|"
       r"\w*VersionConflict: |ptxas fatal {1,4}: Value 'sm_",
       "glibc ld.so; NVIDIA's libraries; torch cpp_extension.py", "ImportError: libtorch_cuda.so: undefined symbol: "
       "ncclCommRegister",
       "nm: 3 symbols undefined, as expected"),
)

CHECKPOINT = (
    _S("ckpt-corrupt", "ckpt_corrupt", _R, SPECIFIC,
       r"unexpected EOF, expected \d|PytorchStreamReader failed|failed finding central directory|"
       r"invalid header or archive is corrupted|pickle data was truncated|Ran out of input|"
       r"UnpicklingError(?!: Weights only)|"
       r"MetadataIncompleteBuffer|HeaderTooLarge|HeaderTooSmall|InvalidHeader|Error while deserializing header|"
       r"File is not a zip file|Bad CRC-32 for file|Data loss: .{0,40}(?:sstable|checksum|corrupt)|"
       r"storage has wrong byte size|Invalid magic number; corrupt|InvalidHeaderDeserialization|"
       r"Unable to load weights from pytorch checkpoint|kMaxSupportedFileFormatVersion|"
       r"CRC-32C checksum verification failed|DATA_LOSS: .{0,400}\bOCDBT",
       "torch serialization.py, inline_container.cc; Python pickle, zipfile; safetensors; tensorstore ocdbt",
       "RuntimeError: unexpected EOF, expected 8 more bytes. The file might be corrupted.",
       "saved header of 8 bytes, archive is complete"),
    _S("ckpt-incomplete", "ckpt_incomplete", _R, SPECIFIC + 3,
       r"metadata is None$|[Cc]heckpoint .{0,200}(?:is not finalized|is incomplete|is not complete)\b|"
       r"Missing key in checkpoint state_dict: |Can't find a valid checkpoint at|"
       r"is not a distributed checkpoint|[Nn]o structure could be identified for the checkpoint at|"
       r"no file named .{1,300} found in directory \S{0,300}checkpoint-\d|zero checkpoints paths are missing|"
       r"No such file or directory: '.{0,300}(?:/\.metadata|\.distcp|mp_rank_\d\d\w*(?:\.pt|/\w{1,40}\.pt)?|"
       r"iter_\d{4,12}/\w{1,40}\.(?:pt|json)|"
       r"_optim_states\.pt|"
       r"latest_checkpointed_iteration\.txt|\.safetensors\.index\.json|model-\d{5}-of-\d{5}\.(?:bin|safetensors)|"
       r"checkpoint-\d+/(?:trainer_state\.json|optimizer\.pt|scheduler\.pt|rng_state\w{0,8}\.pth))'",
       "torch distributed/checkpoint; DeepSpeed; Megatron; transformers trainer.py; orbax", "AssertionError: "
       "metadata is None",
       "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.arrow'"),
    _S("nan", "nan_loss", _R, SPECIFIC - 5,
       r"(?:Error|Exception|Interrupt)\w{0,20}: .{0,200}(?:[Ff]ound (?:NaN|Inf|nan|inf)|[Dd]etected (?:nan|NaN|inf)|"
       r"variables are nan|infinite or NaN|(?:[Ll]oss|[Nn]orm) .{0,40}(?:is|was|"
       r"became|returned) (?:nan|NaN|inf)|"
       r"NaN (?:loss|detected|or Inf)|[Nn]on-?finite|"
       r"(?:not|never) (?:all )?finite|contains? (?:a )?(?:NaN|nan|Inf|inf)|NaN/Inf|"
       r"(?:infinite|Inf|inf) or (?:NaN|nan)|"
       r"[Nn]an (?:loss|values?)|[Mm]inimum loss scale|"
       r"loss scale already at minimum)|"
       r"[Ll]oss is (?:nan|inf|NaN|tensor\((?:nan|inf).{0,40})\W{1,3}(?:stopping|aborting|exiting)|"
       r"Invalid loss, terminating training|(?:Error|Exception)\b.{0,200}(?:contains either `inf`, `nan`|"
       r"to satisfy the constraint .{0,200} but found invalid values)|"
       r"[Ll]oss (?:has )?diverged.{0,60}(?:abort|stopping|exiting|terminating)|"
       r"FloatingPointError|non-finite loss, ending|"
       r"\b[Nn]a[Nn]s? (?:loss|gradients?|grad norm|values?)?.{0,20}(?:detected|encountered|found).{0,40}"
       r"(?:abort|stopping|exiting|terminating)|"
       r"rerun_state_machine:\w.{0,40} result (?:nan|inf|-inf)",
       "Megatron-LM rerun_state_machine.py, param_and_grad_buffer.py; fairseq, DeepSpeed loss scalers; torch anomaly "
       "mode, distributions; keras TerminateOnNaN",
       "AssertionError: Rank 11: found NaN in local grad norm in backward pass before data-parallel communication",
       "WARNING: Gradient overflow. Skipping step, loss is nan, reducing loss scale to 32768"),
)

NATIVE = (
    _S("segfault", "segfault", _R, TYPED + 5,
       r"Fatal Python error: (?:Segmentation|Bus error|Illegal|Floating)|[Ss]egmentation fault|\(SIGSEGV\) received|"
       r"[Cc]aught signal 11|\*\*\* SIGSEGV|[Ss]egfault encountered",
       "Python faulthandler.c; bash; UCX, folly signal handlers", "Fatal Python error: Segmentation fault",
       "Fatal Python error: Aborted"),
    _S("heap", "segfault", _R, TYPED + 5,
       r"double free or corruption|malloc\(\): |free\(\): invalid|corrupted (?:size|double-linked)|munmap_chunk\(\)|"
       r"stack smashing detected",
       "glibc malloc.c", "double free or corruption (!prev)", "malloc: 3 arenas"),
    _S("aborted", "exit_unknown", _R, GENERIC - 2, r"Fatal Python error: Aborted|^Aborted \(core dumped\)",
       "Python faulthandler.c", "Fatal Python error: Aborted", "Fatal Python error: Segmentation fault"),
)
# fmt: on

TABLE: tuple[Signature, ...] = START + CHECKPOINT + NATIVE
