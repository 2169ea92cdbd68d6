package auth

import "bytes"

// SetClusterSeed replaces the seed from which session keys are derived. text is the cluster's new
// seed in hexadecimal. Minions that signed in before must sign in again. The old seed becomes
// invalid at once, because the cluster replaces a seed when somebody unauthorised knows it.
func (s *Secrets) SetClusterSeed(text string) error {
	seed, err := parseSeed(text)
	if err != nil {
		return err
	}
	s.mu.Lock()
	changed := !bytes.Equal(s.seed, seed)
	s.seed = seed
	s.seedGen.Add(1) // raised only after the seed is replaced, see openSession
	s.mu.Unlock()
	if changed && s.files != nil {
		return s.files.removeAll()
	}
	return nil
}

// RotationAsked removes a valid drop file, which RequestRotation writes, and reports whether there
// was one. Masters in a cluster call it, because RotateIfDue does nothing there.
func (s *Secrets) RotationAsked() bool { return s.takeDropFile() }
