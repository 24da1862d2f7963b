//! How a command ends when it does not end well.

use std::io;
use std::process::ExitCode;

/// Why a command ended early.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The command line or environment makes no sense.
    #[error("{0}")]
    Usage(String),
    /// Something went wrong; a sentence.
    #[error("{0}")]
    Error(String),
    /// A problem with a model file or checkpoint.
    #[error(transparent)]
    Container(#[from] fastar_fst::Error),
    /// A problem of the app's work, in its words.
    #[error(transparent)]
    App(#[from] fastar_api::ApiError),
    /// A problem of the engine.
    #[error(transparent)]
    Engine(#[from] fastar_engine::Error),
    /// A problem of measuring.
    #[error(transparent)]
    Bench(fastar_bench::Error),
    /// A problem of the server.
    #[error(transparent)]
    Server(#[from] fastar_server::Error),
    /// The system starts no more threads.
    #[error(transparent)]
    Threads(#[from] fastar_kernels::threads::Refused),
    /// The answer could not be written where it should go.
    #[error("The output could not be written: {0}.")]
    Output(io::Error),
    /// Ctrl+C or another signal that asks to end.
    #[error("stopped")]
    Interrupted,
    /// The reader of our output has seen enough.
    #[error("the reader is gone")]
    ReaderGone,
}

impl From<fastar_bench::Error> for Failure {
    fn from(error: fastar_bench::Error) -> Self {
        match error {
            fastar_bench::Error::Stopped => Self::Interrupted,
            other => Self::Bench(other),
        }
    }
}

impl Failure {
    /// A failed write of output.
    pub fn output(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::ReaderGone,
            _ => Self::Output(error),
        }
    }

    /// What a person should read, if anything.
    pub fn sentence(&self) -> Option<String> {
        match self {
            Self::Interrupted | Self::ReaderGone => None,
            other => Some(other.to_string()),
        }
    }

    /// What a script should see.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::ReaderGone => 0,
            Self::Usage(_) => 2,
            Self::Interrupted => crate::interrupt::exit_code(),
            _ => 1,
        })
    }
}
