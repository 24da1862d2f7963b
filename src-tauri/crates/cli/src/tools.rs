//! `fastar convert` and `fastar inspect`.

use crate::arguments::{ConvertOptions, InspectOptions};
use crate::failure::Failure;
use crate::terminal::{Answers, Progress};
use crate::{interrupt, terminal};

/// Makes a model file. Ctrl+C ends it and leaves nothing.
pub fn convert(options: &ConvertOptions) -> Result<(), Failure> {
    interrupt::take_over()?;
    let mut progress = Progress::new();
    let mut size = 0;
    let converted = interrupt::stops_conversion(|cancel| {
        fastar_fst::convert_until(
            &options.checkpoint_dir,
            &options.out,
            options.effort,
            cancel,
            &mut |done, total| {
                size = total;
                progress.show(|| {
                    format!(
                        "Converting: {} % of {} MB",
                        done * 100 / total.max(1),
                        total / 1_000_000
                    )
                });
            },
        )
    });
    progress.clear();
    let warnings = match converted {
        Err(fastar_fst::Error::Cancelled) => {
            terminal::note("fastar: Stopped; nothing was written.");
            return Err(Failure::Interrupted);
        }
        other => other?,
    };
    for warning in warnings {
        terminal::note(&format!("fastar: warning: {warning}"));
    }
    Answers::new().write(&format!(
        "Wrote {} ({size} bytes).\n",
        options.out.display()
    ))
}

/// Says what is in a model file.
pub fn inspect(options: &InspectOptions) -> Result<(), Failure> {
    let about = fastar_fst::inspect(&options.file)?;
    let text = if options.json {
        let json = serde_json::to_string_pretty(&about)
            .map_err(|e| Failure::Error(format!("The description could not be made: {e}.")))?;
        format!("{json}\n")
    } else {
        about.to_string()
    };
    Answers::new().write(&text)
}
