package setup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"saltern/internal/durable"
	"saltern/supervisor/layout"
	"saltern/supervisor/status"
)

// saved is the set-up's state on disk. With it the set-up can continue after a power cut at any
// point. Secrets are in another file.
type saved struct {
	Schema int `json:"schema"`
	// Phase is the state that was reached. A failure does not change it.
	Phase  status.Setup `json:"phase"`
	Since  time.Time    `json:"since"`
	Source string       `json:"source,omitempty"` // where Source found the answers
	// Auto reports whether the set-up itself retries failures that may pass, because no person gave
	// the answers.
	Auto    bool     `json:"auto,omitempty"`
	Answers Answers  `json:"answers"`
	Done    []string `json:"done,omitempty"` // IDs of the steps that are done
	Failure *Failure `json:"failure,omitempty"`
	// Part is set before the step after which this machine may belong to a cluster. Once it is set,
	// the answers cannot be changed.
	Part bool `json:"part,omitempty"`
}

// secrets holds the answers that are secret. They have a file of their own.
type secrets struct {
	Secret   string `json:"secret,omitempty"`
	Join     string `json:"join,omitempty"`
	Password string `json:"password,omitempty"`
}

const (
	storeSchema = 1
	stateFile   = "state.json"
	secretsFile = "secrets.json"
	maxStore    = 1 << 20
)

// store saves the state in a directory of mode 0700. When writeState returns, the change is on the
// disk.
type store struct {
	dir    string
	before func() error // called before each write; tests simulate power failures with it
}

func (s store) readState() (v saved, err error) {
	b, err := readBounded(filepath.Join(s.dir, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return saved{Schema: storeSchema, Phase: status.SetupNew}, nil
	}

	if err == nil {
		err = json.Unmarshal(b, &v)
	}

	if err != nil {
		return saved{}, fmt.Errorf("state of the set-up: %w", err)
	}
	if v.Schema != storeSchema {
		return saved{}, fmt.Errorf("state of the set-up: schema %d is not known to this version; "+
			"install a newer one, or start over: applianced reset",
			v.Schema)
	}

	var sec secrets
	if b, err := readBounded(filepath.Join(s.dir, secretsFile)); err == nil {
		if err := json.Unmarshal(b, &sec); err != nil {
			return saved{}, fmt.Errorf("secrets of the set-up: %w", err)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return saved{}, fmt.Errorf("secrets of the set-up: %w", err)
	}

	v.Answers.Secret = sec.Secret
	v.Answers.JoinString = sec.Join
	v.Answers.Admin.Password = sec.Password
	return v, nil
}

// writeState saves the state. It writes the secrets first, because a state without them would be
// useless.
func (s store) writeState(v saved) error {
	if s.before != nil {
		if err := s.before(); err != nil {
			return err
		}
	}

	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("keep the state of the set-up: %w", err)
	}

	a := &v.Answers
	sec, err := json.Marshal(secrets{a.Secret, a.JoinString, a.Admin.Password})
	if err != nil {
		return err
	}

	a.Secret = ""
	a.JoinString = ""
	a.Admin.Password = ""
	v.Schema = storeSchema
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}

	if _, err := layout.WriteFile(filepath.Join(s.dir, secretsFile), sec, 0o600); err != nil {
		return fmt.Errorf("keep the secrets of the set-up: %w", err)
	}

	if _, err := layout.WriteFile(filepath.Join(s.dir, stateFile), append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("keep the state of the set-up: %w", err)
	}

	return nil
}

func readBounded(path string) ([]byte, error) {
	b, _, err := durable.ReadFile(path, maxStore, durable.Follow)
	return b, err
}
