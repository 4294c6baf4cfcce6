"""Request and response models, shared by every door. No web framework here."""
