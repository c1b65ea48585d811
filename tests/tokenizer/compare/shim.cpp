// llama.cpp's tokenizer behind two functions, so that the comparison needs no struct of its ABI.
#include <llama.h>

extern "C" void *shim_open(const char *path) {
  llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
  llama_backend_init();
  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  return llama_model_load_from_file(path, params);
}

// Number of tokens, or a negative number where `room` is too small.
extern "C" int shim_tokenize(void *model, const char *text, int length, llama_token *tokens,
                             int room) {
  const llama_vocab *vocab = llama_model_get_vocab(static_cast<llama_model *>(model));
  return llama_tokenize(vocab, text, length, tokens, room, false, false);
}
