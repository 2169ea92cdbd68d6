package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"saltern/internal/versioned"
)

// counts is the content of the file that change changes.
type counts struct {
	Version uint64            `json:"version"`
	By      map[string]uint64 `json:"by"` // changes of each machine
}

// changed is what change prints.
type changed struct {
	Made      uint64 `json:"made"` // acknowledged
	Conflicts int    `json:"conflicts"`
	Faults    int    `json:"faults"`
	Longest   int64  `json:"longest"` // ms
}

// change changes a file of package versioned for so long, as fast as it can,
// together with other machines, and prints what it did.
func change(path string, takes time.Duration) error {
	self, err := os.Hostname()
	if err != nil {
		return err
	}

	f := versioned.File{Path: path, Mode: 0o600, Limit: 1 << 16, Version: func(b []byte) (uint64, error) {
		var c counts
		err := json.Unmarshal(b, &c)
		return c.Version, err
	}}

	var r changed
	for end := time.Now().Add(takes); time.Now().Before(end); {
		start := time.Now()
		err := func() error {
			b, v, err := f.Read()
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}

			c := counts{By: map[string]uint64{}}
			if v > 0 {
				if err := json.Unmarshal(b, &c); err != nil {
					return err
				}
			}

			c.Version++
			c.By[self]++
			if b, err = json.Marshal(c); err != nil {
				return err
			}

			return f.Write(v, b)
		}()

		r.Longest = max(r.Longest, time.Since(start).Milliseconds())
		switch {
		case err == nil:
			r.Made++
		case errors.Is(err, versioned.ErrConflict):
			r.Conflicts++
		default:
			r.Faults++
			fmt.Fprintln(os.Stderr, err)
			time.Sleep(100 * time.Millisecond)
		}
	}

	return json.NewEncoder(os.Stdout).Encode(r)
}
