//! The trie as a table image: the words in use, which are indices and labels and nothing else.
