package auth

import "bytes"

// SetClusterSeed takes the seed of session keys (hexadecimal) that the
// cluster uses from now on. Minions that signed in before must do so again;
// there is no time in which both are good, since a seed is replaced when
// somebody knows the old one who must not.
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

// RotationAsked takes the drop file of RequestRotation away and tells
// whether there was one, for a cluster, in which RotateIfDue does nothing.
func (s *Secrets) RotationAsked() bool { return s.takeDropFile() }
