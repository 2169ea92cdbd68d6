package target

import "saltern/master/value"

// maxText bounds the text of a list or map. Patterns are meant for single values; a pattern matches
// the text of a nested list only by accident.
const maxText = 64 << 10

// pythonStr returns the text of Python's str() of a value.
func pythonStr(v any) string { return value.StrMax(v, maxText) }
