package target

import "saltern/master/value"

// maxText bounds the text of a container; patterns look at values, and a
// list inside a list is matched by its text only by accident.
const maxText = 64 << 10

// pythonStr is Python's str() of a value.
func pythonStr(v any) string { return value.StrMax(v, maxText) }
