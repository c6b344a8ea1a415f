"""What is read off the modules of a model: their modes, gates, embeddings, and a second model beside it."""
