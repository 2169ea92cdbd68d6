package reactor

// Empty reports whether nothing reacts to anything.
func (m Map) Empty() bool { return len(m.rules) == 0 }
