//! Texts and token names that the model was trained with. Not one byte of them may change.
//!
//! They are the constants of `encoding/encoding_dsv4.py`, which DeepSeek publishes with the weights of DeepSeek V4 under the MIT licence
//! (the preview script and the one of the 0731 model, whose effort texts differ). The tests check the sha256 of each.

/// Begins every prompt.
pub(super) const BOS: &str = "<｜begin▁of▁sentence｜>";
/// Ends every answer.
pub(super) const EOS: &str = "<｜end▁of▁sentence｜>";
/// Opens a turn of the person, of a developer, or of tool results.
pub(super) const USER: &str = "<｜User｜>";
/// Opens an answer.
pub(super) const ASSISTANT: &str = "<｜Assistant｜>";
/// Opens a reminder.
pub(super) const REMINDER: &str = "<｜latest_reminder｜>";
/// Opens reasoning.
pub(super) const THINK: &str = "<think>";
/// Ends reasoning; directly after [`ASSISTANT`] it means that there is none.
pub(super) const THINK_END: &str = "</think>";
/// Stands after `<` or `</` in the tags of tool calls.
pub(super) const DSML: &str = "｜DSML｜";

/// Where a model that writes one of these has left its own turn; not every tokenizer has them all.
pub(super) const OTHER_ENDS: [&str; 5] = [
    "<｜▁pad▁｜>",
    "<|EOT|>",
    REMINDER,
    "<｜begin▁sys｜>",
    "<｜end▁sys｜>",
];

/// Round the text of a tool's result: ordinary text, no tokens.
pub(super) const RESULT: (&str, &str) = ("<tool_result>", "</tool_result>");

/// Introduces tools; the names in braces are filled in, the tokens among them as tokens.
pub(super) const TOOLS: &str = "\
## Tools\n\
\n\
You have access to a set of tools to help answer the user's question. You can invoke tools by writing a \"<{dsml_token}tool_calls>\" block like the following:\n\
\n\
<{dsml_token}tool_calls>\n\
<{dsml_token}invoke name=\"$TOOL_NAME\">\n\
<{dsml_token}parameter name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE</{dsml_token}parameter>\n\
...\n\
</{dsml_token}invoke>\n\
<{dsml_token}invoke name=\"$TOOL_NAME2\">\n\
...\n\
</{dsml_token}invoke>\n\
</{dsml_token}tool_calls>\n\
\n\
String parameters should be specified as is and set `string=\"true\"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string=\"false\"`.\n\
\n\
If thinking_mode is enabled (triggered by {thinking_start_token}), you MUST output your complete reasoning inside {thinking_start_token}...{thinking_end_token} BEFORE any tool calls or final response.\n\
\n\
Otherwise, output directly after {thinking_end_token} with tool calls or final response.\n\
\n\
### Available Tool Schemas\n\
\n\
{tool_schemas}\n\
\n\
You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n";

/// Introduces the schema of the answer.
pub(super) const RESPONSE_FORMAT: &str = "\
## Response Format:\n\
\n\
You MUST strictly adhere to the following schema to reply:\n\
{schema}";

/// The effort text of `max` in the preview model and of `high` in the 0731 model.
pub(super) const EFFORT_ABSOLUTE: &str = "\
Reasoning Effort: Absolute maximum with no shortcuts permitted.\n\
You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root cause, rigorously stress-testing your logic against all potential paths, edge cases, and adversarial scenarios.\n\
Explicitly write out your entire deliberation process, documenting every intermediate step, considered alternative, and rejected hypothesis to ensure absolutely no assumption is left unchecked.\n\
\n";

/// The effort text of `max` in the 0731 model.
pub(super) const EFFORT_BEYOND: &str = "\
Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.\n\
You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively decompose the problem into its most fundamental components, trace every causal chain to its root, and resolve the underlying cause rather than any surface symptom.\n\
Do not stop reasoning until you have independently verified the solution from multiple angles and are certain that no assumption remains unchecked and no error remains undiscovered.\n\
\n";
