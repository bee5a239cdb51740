"""Small tokenizers of the three kinds that models have, made here."""

from __future__ import annotations

from functools import cache

from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

LINES = (
    "the cat sat on the mat and the dog sat on the log",
    "ein größeres Mädchen, 42 €; naïve café, ёж и снег",
    "猫は好き 🙂🙃 👩‍👩‍👧 done",
)
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "sat", "on", "mat", "dog", "größer", "."]


@cache
def byte_level() -> Tokenizer:
    """Pieces of bytes, with a space before a word in its token, as GPT-2 has them; 300 tokens."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|end|>"],
        show_progress=False,
    )
    made.train_from_iterator(LINES, trainer)
    return made


@cache
def sentence_piece() -> Tokenizer:
    """Pieces of letters that begin with a mark for the space before them, with bytes for other
    letters and a start token, as Llama has them; 290 tokens."""
    bytes_ = [f"<0x{i:02X}>" for i in range(256)]
    pieces = ["▁", *"abcdehilmnorst.", "▁t", "▁th", "▁the", "at", "▁c", "▁cat", "▁s", "▁sat", "on"]
    names = ["<unk>", "<s>", "</s>", *bytes_, *pieces]
    merges = [("▁", "t"), ("▁t", "h"), ("▁th", "e"), ("a", "t"), ("▁", "c"), ("▁c", "at")]
    merges += [("▁", "s"), ("▁s", "at"), ("o", "n")]
    vocabulary = {name: i for i, name in enumerate(names)}
    made = Tokenizer(models.BPE(vocabulary, merges, byte_fallback=True, unk_token="<unk>"))
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    made.decoder = decoders.Sequence([*parts, decoders.Strip(" ", 1, 0)])
    made.add_special_tokens(["<unk>", "<s>", "</s>"])
    made.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", 1)])
    return made


@cache
def word_level() -> Tokenizer:
    """Whole words, between [CLS] and [SEP]; it asks for padding to 16 and truncation to 4."""
    made = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.add_special_tokens(["[PAD]", "[CLS]", "[SEP]"])
    made.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", None, [("[CLS]", 2), ("[SEP]", 3)]
    )
    made.enable_padding(length=16)
    made.enable_truncation(4)
    return made
