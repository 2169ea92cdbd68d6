package auth

import "bytes"

// SetClusterSeed replaces the seed of session keys by text, the seed in hexadecimal that the
// cluster uses from now on. Minions that signed in before must sign in again. The old seed becomes
// invalid at once: the cluster replaces a seed because somebody knows it who must not.
func (s *Secrets) SetClusterSeed(text string) error {
	seed, err := parseSeed(text)
	if err != nil {
		return err
	}
	s.mu.Lock()
	changed := !bytes.Equal(s.seed, seed)
	s.seed = seed
	s.seedGen.Add(1) // raised after the seed is replaced, see openSession
	s.mu.Unlock()
	if changed && s.files != nil {
		return s.files.removeAll()
	}
	return nil
}

// RotationAsked removes the drop file of RequestRotation and reports whether there was one. It is for
// masters in a cluster, where RotateIfDue does nothing.
func (s *Secrets) RotationAsked() bool { return s.takeDropFile() }
