package auth

import "bytes"

// SetClusterSeed replaces the seed of session keys (hexadecimal) by the one that the cluster uses
// from now on. Minions that signed in before must sign in again. The old seed is invalid at once,
// because a seed is replaced when somebody who must not know it does.
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
