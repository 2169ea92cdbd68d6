package auth

// Clustered reports whether several masters publish with the same key, so that
// publishes carry no serial.
func (s *Secrets) Clustered() bool { return s.headOnly }
