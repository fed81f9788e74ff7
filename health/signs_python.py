"""Signs that are a Python exception's type or message: the user's own program. Data; read by ``signatures``."""

from __future__ import annotations

from .signatures import TYPED, Role, Signature

_R, _N = Role.ROOT, Role.NOISE
_S = Signature

# fmt: off
TABLE: tuple[Signature, ...] = (
    _S("syntax", "user_syntax", _R, TYPED, r"(?:SyntaxError|IndentationError|TabError)\b", "Python compile",
       "SyntaxError: invalid syntax", "SyntaxWarning: invalid escape sequence", raised=True),
    _S("import", "user_import", _R, TYPED, r"(?:ModuleNotFoundError|ImportError|PackageNotFoundError)\b",
       "Python import system, importlib.metadata",
       "ModuleNotFoundError: No module named 'flash_attn'", "ImportWarning: can't resolve package", raised=True),
    _S("interrupt", "user_interrupt", _R, TYPED, r"KeyboardInterrupt\b", "Python SIGINT handler",
       "KeyboardInterrupt", "InterruptedError: [Errno 4] Interrupted system call", raised=True),
    _S("missing",
       "user_data_missing", _R, TYPED, r"(?:(?:FileNotFound|DatasetNotFound|DataFilesNotFound|FileNotFoundDatasets|"
       r"NotADirectory)Error)\b|NoSuchKey\b|"
       r"\w*Error\b.{0,200}(?:\[Errno 2\]|No such file or directory|does not appear to have a file named|"
       r"Can't load \w{1,20}(?: \w{1,20})? (?:for|of) '|Repo id must .{1,120}: '/|Incorrect path_or_model_id: '/|"
       r"[Ee]rror no file named|"
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
    _S("shape-operands", "user_shape", _R, TYPED + 5,
       r"\w*(?:Error|Exception)\b.{0,200}(?:does not broadcast with|to have the same shape|[Ii]ncompatible shapes|"
       r"contracting dim|must match the (?:existing )?size|same number of dimensions|[Dd]imension out of range|"
       r"must be equal to input_size|mismatch in its core dimension|[Ii]nconsistent tensor sizes|"
       r"[Ee]xpected \d+(?:D|-dimensional) .{0,60}input|to have \d+ channels|must be a \dD tensor|"
       r"self must be a matrix|"
       r"does(?: not|n't) match the shape|[Ee]xpected size for first|"
       r"[Ss]hapes? .{0,60} (?:do(?:es)? not|don't|must) match|"
       r"shapes? .{0,60} (?:are|is) (?:not aligned|incompatible)|cannot reshape (?:array|tensor) of |"
       r"set a tensor of shape .{0,200}, this looks incorrect)",
       "torch ATen Linear.cpp (einsum), WrapDimUtils, RNN.cpp; jax lax.py; tensorflow; numpy ufunc; accelerate "
       "utils/modeling.py",
       "RuntimeError: einsum(): subscript d has size 128 for operand 1 which does not broadcast with previously seen "
       "size 64",
       "RuntimeError: the broadcast of the settings failed", raised=True),
    _S("shape-fake", "user_shape", _R, TYPED + 5,
       r"a and b must have same reduction dim, but got|Attempting to broadcast a dimension of length -?\d+ at",
       "torch _meta_registrations.py, _refs: shapes of a compiled program; dynamo puts much before them, or a line of "
       "its own",
       "a and b must have same reduction dim, but got [8192, 4096] X [5120, 11008].",
       "the reduction dim of a and b is 4096"),
    _S("data", "user_data_error", _R, TYPED - 5,
       r"(?:KeyError|UnicodeDecodeError|JSONDecodeError|ArrowInvalid|UnidentifiedImageError|BadGzipFile|DataLossError|"
       r"DatasetGenerationError|ParserError)\b|"
       r"\w*[Ee]rror\b.{0,300}(?:image file is truncated|Not a gzipped file|!_src\.empty\(\)|unexpected end of data|"
       r"Compressed file ended before)",
       "Python dict and codecs; json, pyarrow, Pillow, pandas, datasets", "KeyError: 'label'",
       "AttributeError: 'Trainer' object has no attribute 'label'", raised=True),
    _S("data-codec", "user_data_error", _R, TYPED - 5,
       r"(?:DatasetGenerationCastError|CastError|LZMAError|ZstdError|InvalidDataError|DECORDError|LibsndfileError|"
       r"NonMatching\w{1,16}Error|ChecksumVerificationError|DecompressionBombError)\b|"
       r"\w*[Ee]rror: (?:Error -\d while decompressing|unpack requires a|line contains NUL)|"
       r"\w*Error\b.{0,200}(?:[Ss]ample index \d+ is not present|[Cc]hecksum (?:failure|mismatch|did not match)|"
       r"Couldn't deserialize thrift|Corrupt \w{2,8} compressed data)",
       "Python zlib, lzma, struct, csv; datasets, mosaicml streaming, PyAV, decord, soundfile, Pillow, "
       "parquet",
       "zlib.error: Error -3 while decompressing data: incorrect header check",
       "IndexError: list index out of range", raised=True),
    _S("data-fields", "user_data_error", _R, TYPED - 5,
       r"ValueError: (?:Cannot load file containing pickled data|the magic string is not correct|"
       r"didn't find \[.{0,80}\] in \[|could not convert string to (?:float|int)|"
       r"Columns? .{0,80} not in )",
       "webdataset filters.py to_tuple; Python float, int; datasets; numpy npyio.py",
       "ValueError: didn't find ['txt'] in ['__key__', '__url__', 'jpg']",
       "ValueError: didn't find a free port", raised=True),
    _S("data-path", "user_data_missing", _R, TYPED - 6,
       r"\w*(?:Error|Exception): .{0,300}(?:"
       r"['\"` ]/[\w.@+-]{1,60}/.{0,200} (?:does(?: not|n't) exist|(?:is|was|were)? ?not found|is missing)\b|"
       r"(?:cannot be found|could not (?:be found|find)|[Cc]ould not find|did not find|[Nn]o \w{1,20} (?:found|match))"
       r"\b.{0,80}['\"` ]/[\w.@+-]{1,60}/)",
       "programs that look for their data: Megatron-LM indexed_dataset.py and others",
       "AssertionError: One or both of the .idx and .bin files cannot be found at the path prefix /data/pile_document",
       "RuntimeError: the operator aten/fft does not exist", raised=True),
    _S("object-missing", "user_data_missing", _R, TYPED + 4,
       r"NoSuch(?:Key|Bucket|Object)\b|NotFound: 404|(?:(?:Remote)?Entry|Revision)NotFoundError: 404|\w*(?:Error|"
       r"Exception)\b.{0,80}(?:\(404\)|\(NoSuch\w{3,8}\)|"
       r"No such object)",
       "botocore, google api_core, huggingface_hub errors.py: a store's 404",
       "ClientError: An error occurred (404) when calling the HeadObject operation: Not Found",
       "ClientError: An error occurred (403) when calling the HeadObject operation: Forbidden", raised=True),
    _S("data-format", "user_data_error", _R, TYPED + 1,
       r"\w*Error\b.{0,80}open file \((?:file signature not found|truncated file)", "h5py: not an HDF5 file",
       "OSError: Unable to synchronously open file (file signature not found)",
       "OSError: Unable to synchronously open file (unable to open file: errno = 2)", raised=True),
    _S("environment", "user_exception", _R, TYPED - 4, r"KeyError: '[A-Z][A-Z0-9_]{2,60}'$",
       "Python os.environ: an environment variable is not set", "KeyError: 'WANDB_PROJECT'",
       "KeyError: 'label'", raised=True),
    _S("config-error", "user_args", _R, TYPED - 3,
       r"(?:Config(?:Attribute|Key|Type|Value|Composition|Index)\w{0,10}|MissingMandatoryValue|MissingConfigException|"
       r"InterpolationKeyError|ScannerError|ParserError: (?:while parsing|expected|did not find)|ConfigError|"
       r"InvalidConfigurationError|UsageError)\b",
       "omegaconf errors.py, hydra errors.py, PyYAML scanner.py, parser.py",
       "omegaconf.errors.ConfigAttributeError: Key 'optimzer' is not in struct",
       "KeyError: 'config'", raised=True),
    _S("config-invalid", "user_args", _R, TYPED - 3,
       r"ValidationError: (?:\d+ validation errors? for|.{1,80} is not of type)|"
       r"ValueError: No valid checkpoint found in output directory",
       "pydantic, jsonschema; transformers trainer.py",
       "pydantic_core._pydantic_core.ValidationError: 1 validation error for TrainConfig",
       "ValidationError: the accuracy fell below 0.9", raised=True),
    _S("config-mismatch", "user_args", _R, TYPED - 3,
       r"\w*Error\b.{0,200}(?:not equal to micro_batch_per_gpu|world.?size \(\d+\) is not divisible by|"
       r"Unsupported nproc_per_node value|"
       r"(?:is not|should be|must be) divisible by (?:the )?(?:world|data|tensor|pipeline|context|expert|model)"
       r"[\w -]{0,30}size)",
       "DeepSpeed config.py _batch_assertion; Megatron-LM arguments.py validate_args",
       "AssertionError: world size (12) is not divisible by total_model_size (8)",
       "AssertionError: hidden size is not divisible by 3", raised=True),
    _S("auth-login", "user_auth", _R, TYPED + 5,
       r"(?:DefaultCredentialsError|RefreshError|PartialCredentialsError|\w{0,12}TokenLoadError|TokenRetrievalError|"
       r"LocalTokenNotFoundError|ClientAuthenticationError|Unauthenticated|PermissionDenied|Forbidden|Unauthorized)\b|"
       r"ApiException: \(40[13]\)|ValueError: API key must be \d|"
       r"\w*(?:Error|Exception)\b.{0,120}(?:SignatureDoesNotMatch|\(InvalidToken\)|No API key configured)",
       "google auth exceptions.py, api_core; botocore; azure core; huggingface_hub; wandb; OpenAPI clients",
       "google.auth.exceptions.DefaultCredentialsError: Your default credentials were not found.",
       "TokenizerError: token 12 not found", raised=True),
    _S("auth-access", "user_auth", _R, TYPED + 6,
       r"CommError: .{0,200}(?:[Pp]ermission|40[13])|HttpError: .{0,400}(?:does not have storage\.|, 40[13]$)",
       "wandb sdk/internal/internal_api.py: a service's own error type also stands for a refusal; gcsfs retry.py",
       "wandb.errors.CommError: It appears that you do not have permission to access the requested resource.",
       "wandb.errors.CommError: Run initialization has timed out after 90.0 sec.", raised=True),
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
       r"reach the server|server can't be reached)|"
       r"(?:ServiceUnavailable|GatewayTimeout|ReadTimeout|ConnectTimeout|EndpointConnectionError|"
       r"LocalEntryNotFoundError|CommError|"
       r"ServerDisconnectedError|"
       r"ChunkedEncodingError|IncompleteRead|OfflineModeIsEnabled|ConnectionError$)\b",
       "requests, urllib3, botocore, huggingface_hub, wandb",
       "HTTPError: 503 Server Error: Service Unavailable for url: https://hub.example/api",
       "HTTPError: 401 Client Error: x", raised=True),
    _S("service-client", "external_service", _R, TYPED + 5,
       r"(?:TooManyRequests|DeadlineExceeded|\w{0,16}(?:Connect|Read)TimeoutError|ConnectionClosedError|"
       r"HTTPClientError|"
       r"Service(?:Response|Request)\w{0,7}Error|ClientConnector\w{0,12}Error|ClientPayloadError|RemoteDisconnected|"
       r"RemoteProtocolError|ConnectError|ResponseNotReady|RetryError|ProtocolError|ProxyError|SSLError|MaxRetryError|"
       r"NewConnectionError|ServerSelectionTimeoutError|AutoReconnect|InternalServerError|API(?:Connection|"
       r"Timeout)Error|"
       r"RateLimitError|FileDownloadError)\b|ApiException: \(5\d\d\)|"
       r"OSError: Consistency check failed: file should be of|HttpError: .{0,200}, (?:429|50\d)$|"
       r"RuntimeError: Data processing error: .{0,200}(?:Request failed after \d|server error|error sending request)|"
       r"\w*ConnectionError: Error \d{1,3} connecting to|RestException: INTERNAL_ERROR|"
       r"OperationalError\b.{0,200}(?:[Cc]ould not connect|[Cc]onnection refused|server closed the connection)|"
       r"\w*(?:Error|Exception)\b.{0,120}(?:\((?:InternalError|RequestTimeout|ServiceUnavailable|Throttling\w{0,9}|"
       r"50[0234])\)|StatusCode\.UNAVAILABLE|Remote end closed connection|Failed to establish a new connection)|"
       r"\w*(?:Error|Exception)\b.{0,300}Max retries exceeded with url",
       "botocore exceptions.py, google api_core, aiohttp, httpx, http.client, azure core, tenacity, grpc; pymongo, "
       "redis, mlflow, psycopg; openai, gcsfs; hf_xet; "
       "huggingface_hub file_download.py; modelscope",
       "botocore.exceptions.ClientError: An error occurred (InternalError) when calling the PutObject operation",
       "ClientError: An error occurred (NoSuchKey) when calling the GetObject operation", raised=True),
    _S("auth-tool", "user_auth", _R, TYPED + 5,
       r"fatal: Authentication failed for '|could not read Username for '", "git credential.c, http.c",
       "fatal: Authentication failed for 'https://git.example/x.git/'",
       "fatal: unable to access 'https://git.example/x.git/': The requested URL returned error: 503"),
    _S("dns-raised", "dns_failure", _R, TYPED + 20,
       r"\w*(?:Error|Exception)\b.{0,300}(?:Name or service not known|DNS resolution failed for|"
       r"No address associated with hostname|[Nn]odename nor servname)",
       "glibc gai_strerror, gRPC, gloo device.cc",
       "RuntimeError: [gloo/transport/tcp/device.cc:84] Name or service not known",
       "RuntimeError: the name of the service is empty", raised=True),
    _S("service-tool", "external_service", _R, TYPED + 5,
       r"fatal: unable to access '\w{2,6}://|curl: \((?:7|28|35|52|56)\) |^ERROR 50[0234]: ",
       "git http.c; curl tool_operate.c; wget http.c",
       "fatal: unable to access 'https://git.example/x.git/': The requested URL returned error: 503",
       "curl: (22) The requested URL returned error: 404"),
    _S("address-taken", "port_in_use", _R, TYPED + 6,
       r"\w*(?:Error|Exception)\b.{0,300}[Aa]ddress already in use", "errno EADDRINUSE; zmq, grpc, asyncio",
       "zmq.error.ZMQError: Address already in use (addr='tcp://*:5555')",
       "OSError: [Errno 99] Cannot assign requested address", raised=True),
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
