package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"saltern/master/crypt"
)

// session is the file of -state: keys of sign-ins, so that the next run need
// not repeat them.
type session struct {
	Master  string               `json:"master"`  // its public key, PEM
	Minions map[string][2]string `json:"minions"` // by id: the keys for publishes and of the session
}

// load reads -state; a file that is not there holds nothing.
func (s *swarm) load() error {
	s.kept.Minions = map[string][2]string{}
	if s.opts.state == "" {
		return nil
	}

	b, err := os.ReadFile(s.opts.state)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if err == nil {
		err = json.Unmarshal(b, &s.kept)
	}
	if err == nil {
		s.masterKey, err = crypt.ParsePublic([]byte(s.kept.Master))
	}

	if err != nil {
		return fmt.Errorf("state %s: %w", s.opts.state, err)
	}

	return nil
}

// recall gives a player the keys that -state has for it.
func (s *swarm) recall(p *player) error {
	keys, ok := s.kept.Minions[p.id]
	if !ok {
		return nil
	}

	publics, err := crypt.ParseKey(keys[0])
	if err != nil {
		return fmt.Errorf("state of %s: %w", p.id, err)
	}

	session, err := crypt.ParseKey(keys[1])
	if err != nil {
		return fmt.Errorf("state of %s: %w", p.id, err)
	}

	p.take(publics, session)
	return nil
}

// save writes -state.
func (s *swarm) save() error {
	if s.opts.state == "" || s.masterKey == nil || len(s.players) == 0 {
		return nil
	}

	for _, p := range s.players {
		if p.signedIn() {
			s.kept.Minions[p.id] = [2]string{p.minion.Publics.String(), p.minion.Session.String()}
		}
	}

	var err error
	if s.kept.Master, err = crypt.PublicPEM(s.masterKey); err != nil {
		return err
	}

	b, err := json.Marshal(s.kept)
	if err != nil {
		return err
	}

	return os.WriteFile(s.opts.state, b, 0o600)
}
