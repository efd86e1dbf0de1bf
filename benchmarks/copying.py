"""How soon does a tiny model copy? Random tokens said twice: loss and hits on the second round, wired or not.

    python benchmarks/copying.py

Both models have the same sizes, weights drawn from the same seed, and the same data.
"""

import argparse

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from seed_agent.circuits import HEAD, THETA, wire_copying

WORDS, LONGEST, ROWS = 1_000, 60, 16


def main() -> None:
    """Print a line per model and measured step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--lr", type=float, default=2e-3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for wired in (True, False):
        model = fresh(wired)
        optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, betas=(0.9, 0.95), weight_decay=0.01)
        draws = torch.Generator().manual_seed(1)
        for step in range(options.steps + 1):
            loss, hits = measure(model, draws)
            if step in (0, 10, 20, 50) or step % 100 == 0:
                print(
                    f"{'wired' if wired else 'random'} step {step:4d} loss {loss.item():.3f} copied {hits:.1%}",
                    flush=True,
                )
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()


def fresh(wired: bool) -> LlamaForCausalLM:
    """Return the text model of the base policies with as many words, of random weights."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=WORDS,
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=HEAD,
            rope_parameters={"rope_type": "default", "rope_theta": THETA},
            tie_word_embeddings=True,
        )
    )
    if wired:
        wire_copying(model)
    return model


def measure(model: LlamaForCausalLM, draws: torch.Generator) -> tuple[torch.Tensor, float]:
    """Return the loss of the second round in nats per token, and the share of its tokens that rank first."""
    length = int(torch.randint(4, LONGEST + 1, (1,), generator=draws))
    once = torch.randint(0, WORDS, (ROWS, length), generator=draws)
    said = model(torch.cat([once, once], 1)).logits[:, length:-1]
    wanted = once[:, 1:]
    loss = torch.nn.functional.cross_entropy(said.reshape(-1, WORDS), wanted.reshape(-1))
    return loss, float((said.argmax(-1) == wanted).float().mean())


if __name__ == "__main__":
    main()
