package git

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"saltern/internal/durable"
)

// Ref is a branch or tag and its commit.
type Ref struct {
	Name   string `json:"name"` // refs/remotes/origin/x or refs/tags/x
	Commit string `json:"commit"`
	Tree   string `json:"tree"`
}

// Snapshot holds the refs of a repository when it was fetched. It never changes.
type Snapshot struct {
	Refs    []Ref     `json:"refs"`    // sorted by name
	Listed  string    `json:"listed"`  // digest of the remote's list of refs, as listRefs returns it
	Fetched time.Time `json:"fetched"` // when the snapshot was made
	Seq     uint64    `json:"-"`       // sequence number of the snapshot in this process
}

// maxSnapshot bounds the size of a snapshot's file, in bytes.
const maxSnapshot = 16 << 20

func (s *Snapshot) findRef(name string) (Ref, bool) {
	if s == nil {
		return Ref{}, false
	}
	i, ok := slices.BinarySearchFunc(s.Refs, name, func(r Ref, n string) int { return strings.Compare(r.Name, n) })
	if !ok {
		return Ref{}, false
	}
	return s.Refs[i], true
}

// Branch returns a branch of the remote. It returns false if the remote has no such branch. s may
// be nil: there is no branch.
func (s *Snapshot) Branch(name string) (Ref, bool) { return s.findRef("refs/remotes/origin/" + name) }

// Tag returns a tag of the remote. It returns false if the remote has no such tag. s may be nil:
// there is no tag.
func (s *Snapshot) Tag(name string) (Ref, bool) { return s.findRef("refs/tags/" + name) }

// Branches returns the names of the branches.
func (s *Snapshot) Branches() []string { return s.namesBelow("refs/remotes/origin/") }

// Tags returns the names of the tags.
func (s *Snapshot) Tags() []string { return s.namesBelow("refs/tags/") }

func (s *Snapshot) namesBelow(prefix string) (out []string) {
	if s == nil {
		return nil
	}
	for _, r := range s.Refs {
		if name, ok := strings.CutPrefix(r.Name, prefix); ok {
			out = append(out, name)
		}
	}
	return out
}

func (s *Snapshot) saveTo(path string) error {
	b, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("write the snapshot: %w", err)
	}
	return durable.Replace(path, b, 0o600)
}

// loadSnapshot reads a file that saveTo has written. It validates the content as untrusted input.
func loadSnapshot(path string) (*Snapshot, error) {
	b, err := durable.Read(path, maxSnapshot)
	if err != nil {
		return nil, err
	}

	var s Snapshot
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("read the snapshot: %w", err)
	}

	for _, r := range s.Refs {
		if !objectID.MatchString(r.Commit) || !objectID.MatchString(r.Tree) || r.Name == "" {
			return nil, errors.New("read the snapshot: a ref cannot be read")
		}
	}

	slices.SortFunc(s.Refs, func(a, b Ref) int { return strings.Compare(a.Name, b.Name) })
	return &s, nil
}
