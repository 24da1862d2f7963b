//! Prints the TypeScript of the contract; `cargo xtask types` writes it to `ui/src/lib/api/types.ts`.

fn main() {
    print!("{}", fastar_api::typescript());
}
