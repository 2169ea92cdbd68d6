package target

import "saltern/master/value"

// maxText bounds the text of a container. Patterns are meant for values; the text of a nested list
// matches only by accident.
const maxText = 64 << 10

// pythonStr is Python's str() of a value.
func pythonStr(v any) string { return value.StrMax(v, maxText) }
