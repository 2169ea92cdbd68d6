package auth

import "bytes"

// SetClusterSeed replaces the seed of session keys (hexadecimal) by the one that the cluster uses
// from now on. Minions that signed in before must do so again. The two seeds never hold at the same
// time: a seed is replaced when somebody knows it who must not.
func (s *Secrets) SetClusterSeed(text string) error {
	seed, err := parseSeed(text)
	if err != nil {
		return err
	}
	s.mu.Lock()
	changed := !bytes.Equal(s.seed, seed)
	s.seed = seed
	s.seedGen.Add(1) // after the seed, see openSession
	s.mu.Unlock()
	if changed && s.files != nil {
		return s.files.removeAll()
	}
	return nil
}

// RotationAsked removes the drop file of RequestRotation and reports whether there was one. It is
// for a cluster, in which RotateIfDue does nothing.
func (s *Secrets) RotationAsked() bool { return s.takeDropFile() }
