package fileserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"
)

// sharedWrite bounds a write to shared storage, and the wait for the writes before it.
const sharedWrite = 10 * time.Second

// Shared is a Tree that this node reads from a copy. It is written on the storage from which all
// nodes copy: what is written into the copy is gone with the next pass.
type Shared struct {
	Tree
	// Source returns the place of a directory of the copy on that storage. The error says why
	// nothing can be written there now.
	Source func(ctx context.Context, dir string) (string, error)
	// Newest brings the copy up to date. The error says why it is older.
	Newest func(ctx context.Context) error
	// turn holds a token while a file is written.
	turn chan struct{}
}

// NewShared returns a Shared.
func NewShared(
	t Tree,
	source func(context.Context, string) (string, error),
	newest func(context.Context) error,
) *Shared {
	return &Shared{Tree: t, Source: source, Newest: newest, turn: make(chan struct{}, 1)}
}

// Write is [Tree.Write]. It returns when this node's copy has the file.
func (s *Shared) Write(ctx context.Context, data, rel, env string, index int) (string, error) {
	dir, refusal := s.rootDir(data, rel, env, index)
	if refusal != "" {
		return refusal, nil
	}

	at, err := s.Source(ctx, dir)
	switch {
	case err != nil:
		return "", fmt.Errorf("write %s to the shared storage: %w", rel, err)
	case at == dir:
		return s.Tree.Write(ctx, data, rel, env, index)
	}

	dest := filepath.Join(at, rel)
	err = s.writeShared(ctx, at, filepath.Clean(rel), data)
	if errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("%w (next: let the master's account write there, or edit the file on a node)", err)
	}

	if err != nil {
		return "", fmt.Errorf("write %s: %w", dest, err)
	}

	if err := s.Newest(ctx); err != nil {
		return fmt.Sprintf("Wrote data to file %s, which this node serves later: %v", dest, err), nil
	}

	return "Wrote data to file " + dest, nil
}

// writeShared replaces a file, one at a time. A storage that hangs holds one goroutine, which ends
// when the supervisor unmounts it.
func (s *Shared) writeShared(ctx context.Context, dir, rel, data string) error {
	wait, cancel := context.WithTimeout(ctx, sharedWrite)
	defer cancel()
	select {
	case s.turn <- struct{}{}:
	case <-wait.Done():
		return errors.New("a write of before has not ended, or many of them: the shared storage is slow, or does not answer; nothing was written")
	}

	within, cancel := context.WithTimeout(ctx, sharedWrite)
	defer cancel()
	written := make(chan error, 1)
	go func() {
		err := replaceBelow(dir, rel, data)
		<-s.turn
		written <- err
	}()

	select {
	case err := <-written:
		return err
	case <-within.Done():
		return errors.New("the shared storage does not answer; the file may be written still")
	}
}
