"""The verbs of the memory and of its administration, by what they are about; each class is a part of one of them."""
