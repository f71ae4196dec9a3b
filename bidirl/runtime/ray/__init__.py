"""The real cluster: Ray actors that hold vLLM and DeepSpeed engines. Import what you need from its modules."""
