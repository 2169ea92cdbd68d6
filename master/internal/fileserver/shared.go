package fileserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"
)

// sharedWrite bounds the time of a write to shared storage, including the wait for earlier writes.
const sharedWrite = 10 * time.Second

// Shared is a Tree whose files this node reads from its copy. Write writes to the shared storage,
// from which all nodes update their copies. A change in the copy itself would be overwritten by the
// next update.
type Shared struct {
	Tree
	// Source returns the directory on the shared storage that corresponds to a directory of the
	// copy. It returns an error if that directory cannot be written now.
	Source func(ctx context.Context, dir string) (string, error)
	// Newest updates the copy. It returns an error if the copy could not be updated.
	Newest func(ctx context.Context) error
	// turn holds a token while a file is being written.
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

// Write writes to the shared storage, with the arguments and results of [Tree.Write]. It returns
// when this node's copy contains the file.
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

// writeShared replaces a file on the shared storage. Only one write runs at a time. If the storage
// hangs, one goroutine hangs with it, until the supervisor unmounts the storage.
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
