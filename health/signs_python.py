"""Signs that are a Python exception's type or message: the user's own program. Data; read by ``signatures``."""

from __future__ import annotations

from .signatures import TYPED, Role, Signature

_R, _N = Role.ROOT, Role.NOISE
_S = Signature

# fmt: off
TABLE: tuple[Signature, ...] = (
    _S("syntax", "user_syntax", _R, TYPED, r"(?:SyntaxError|IndentationError|TabError)\b", "Python compile",
       "SyntaxError: invalid syntax", "SyntaxWarning: invalid escape sequence", raised=True),
    _S("import", "user_import", _R, TYPED, r"(?:ModuleNotFoundError|ImportError)\b", "Python import system",
       "ModuleNotFoundError: No module named 'flash_attn'", "ImportWarning: can't resolve package", raised=True),
    _S("interrupt", "user_interrupt", _R, TYPED, r"KeyboardInterrupt\b", "Python SIGINT handler",
       "KeyboardInterrupt", "InterruptedError: [Errno 4] Interrupted system call", raised=True),
    _S("missing",
       "user_data_missing", _R, TYPED, r"(?:FileNotFoundError|DatasetNotFoundError|NotADirectoryError)\b|NoSuchKey\b|"
       r"\w*Error\b.{0,200}(?:\[Errno 2\]|No such file or directory|does not appear to have a file named|"
       r"is not a valid model identifier|Unable to (?:synchronously )?open file)",
       "errno ENOENT; datasets; S3",
       "FileNotFoundError: [Errno 2] No such file or directory: '/data/train-00017.arrow'",
       "FileExistsError: [Errno 17] File exists: '/data/train'", raised=True),
    _S("permission", "user_permission", _R, TYPED, r"PermissionError\b|\w*Error: \[Errno (?:1|13)\]",
       "errno EACCES, EPERM",
       "PermissionError: [Errno 13] Permission denied: '/shared/runs/exp42'",
       "FileExistsError: [Errno 17] File exists", raised=True),
    _S("memory", "host_oom", _R, TYPED, r"(?:_Array)?MemoryError\b", "Python: malloc refused", "MemoryError",
       "RecursionError: maximum recursion depth exceeded", raised=True),
    _S("shape", "user_shape", _R, TYPED + 5,
       r"\w*(?:Error|Exception)\b.{0,200}(?:shapes cannot be multiplied|[Ss]ize mismatch|size of tensor \w+ \(|"
       r"Sizes of tensors must match|is invalid for input of size|expects each tensor to be equal size|"
       r"shape mismatch|[Ee]xpected size \d|"
       r"Given groups=|Expected input batch_size|could not broadcast input array|cannot be broadcast|"
       r"could not be broadcast|must be the same as input size|"
       r"loading state_dict for)",
       "torch ATen TensorIterator, LinearAlgebra, Convolution; numpy",
       "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x1024 and 2048x512)",
       "RuntimeError: the size of the queue is 8", raised=True),
    _S("data", "user_data_error", _R, TYPED - 5,
       r"(?:KeyError|UnicodeDecodeError|JSONDecodeError|ArrowInvalid|UnidentifiedImageError|BadGzipFile|DataLossError|"
       r"DatasetGenerationError|ParserError)\b|"
       r"\w*[Ee]rror\b.{0,300}(?:image file is truncated|Not a gzipped file|!_src\.empty\(\)|unexpected end of data|"
       r"Compressed file ended before)",
       "Python dict and codecs; json, pyarrow, Pillow, pandas, datasets", "KeyError: 'label'",
       "AttributeError: 'Trainer' object has no attribute 'label'", raised=True),
    _S("data-format", "user_data_error", _R, TYPED + 1,
       r"\w*Error\b.{0,80}open file \((?:file signature not found|truncated file)", "h5py: not an HDF5 file",
       "OSError: Unable to synchronously open file (file signature not found)",
       "OSError: Unable to synchronously open file (unable to open file: errno = 2)", raised=True),
    _S("environment", "user_exception", _R, TYPED - 4, r"KeyError: '[A-Z][A-Z0-9_]{2,60}'$",
       "Python os.environ: an environment variable is not set", "KeyError: 'WANDB_PROJECT'",
       "KeyError: 'label'", raised=True),
    _S("auth", "user_auth", _R, TYPED + 5,
       r"(?:GatedRepoError|RepositoryNotFoundError|AuthenticationError|NoCredentialsError|UnauthorizedError|"
       r"AccessDenied)\b|"
       r"\w*(?:Error|Exception)\b.{0,120}(?:40[13] Client Error|\(AccessDenied\)|Unauthorized|Invalid user token|"
       r"\(403\)|Forbidden|access a gated repo|"
       r"InvalidAccessKeyId|ExpiredToken|api_key not configured)",
       "huggingface_hub errors.py, wandb, botocore, requests",
       "GatedRepoError: 401 Client Error. (Request ID: Root=1-0000)",
       "HTTPError: 503 Server Error: Service Unavailable for url", raised=True),
    _S("service", "external_service", _R, TYPED + 5,
       r"\w*(?:Error|Exception|Timeout)\b.{0,120}(?:50[0234] Server Error|429 Client Error|\(SlowDown\)|SlowDown|"
       r"\(503\)|ServerBusy|server is busy|InternalServerError|TooManyRequests|BadGateway|"
       r"Service Unavailable|Max retries exceeded with url|Read timed out|Gateway Time-?out|Too Many Requests|"
       r"couldn't connect to '|operation timed out|urlopen error|"
       r"reach the server)|"
       r"(?:ServiceUnavailable|GatewayTimeout|ReadTimeout|ConnectTimeout|EndpointConnectionError|"
       r"LocalEntryNotFoundError|CommError|"
       r"ServerDisconnectedError|"
       r"ChunkedEncodingError|IncompleteRead|OfflineModeIsEnabled|ConnectionError$)\b",
       "requests, urllib3, botocore, huggingface_hub, wandb",
       "HTTPError: 503 Server Error: Service Unavailable for url: https://hub.example/api",
       "HTTPError: 401 Client Error: x", raised=True),
    _S("retry-loop", "", _N, 0, r"entering retry loop|[Rr]etrying (?:in|after|request|with)|will retry|"
       r"(?:out of memory|nan|NaN)\b.{0,600}\b(?:trying|retrying|halving|reducing|lowering|skipping|falling back|"
       r"continuing)\b|"
       r"\b(?:[Tt]rying|[Rr]etrying|[Hh]alving|[Rr]educing|[Ss]kipping)\b.{0,200}out of memory",
       "wandb, urllib3, frameworks: it went on", "wandb: Network error (ConnectionError), entering retry loop.",
       "requests.exceptions.ConnectionError: Max retries exceeded with url: /api"),
    _S("no-nvml",
       "", _N, 0, r"NVMLError_(?:LibraryNotFound|Uninitialized|DriverNotLoaded)|NVML Shared Library Not Found",
       "pynvml: monitoring is off, training need not be",
       "pynvml.NVMLError_LibraryNotFound: NVML Shared Library Not Found",
       "pynvml.NVMLError_GpuIsLost: GPU is lost"),
)
# fmt: on
