package glusterctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"saltern/glusterctl/mount"
	"saltern/internal/command"
)

const (
	// mostNames bounds how many names are looked up. Names beyond the bound are not checked.
	mostNames = 1 << 20
	// namesRest is the pause between listing a directory and looking up its names. It is longer
	// than any cache keeps the attributes that a listing returns (entry-timeout of the mount and
	// performance.md-cache-timeout, 1 s each), so the look-up asks all copies.
	namesRest   = 2500 * time.Millisecond
	namesAtOnce = 8
	namesLimit  = 15 * time.Minute
)

// namesReply is the output of the helper that looks up names.
type namesReply struct {
	Looked int `json:"looked"`
	// Torn are the names, relative to the root, whose copies hold different files (EIO), but
	// not more than mostSettled of them.
	Torn []string `json:"torn,omitempty"`
}

// tornNames looks up every name on the volume, in a child, and returns the names whose copies hold
// different files. If there is no mount or no helper, it returns none.
func (c *Controller) tornNames(ctx context.Context, d Desired) ([]string, error) {
	if d.Mount == "" || len(c.cfg.Helper) == 0 {
		return nil, nil
	}

	ctx, cancel := context.WithTimeout(ctx, namesLimit)
	defer cancel()
	out, err := command.Do(ctx, c.cfg.Runner, append(slices.Clone(c.cfg.Helper), "names", d.Volume, d.Mount)...)
	if err != nil {
		return nil, fmt.Errorf("look names up: %w", err)
	}

	var r namesReply
	if err := json.Unmarshal(out, &r); err != nil {
		return nil, fmt.Errorf("look names up: %w", err)
	}

	return r.Torn, nil
}

// namesOf runs in the child: it looks up every name below the root of a mounted volume.
func namesOf(volume, root string) (namesReply, error) {
	m := mount.Mounter{Volume: volume, Point: root}
	e, ok, err := m.Entry()
	if err != nil {
		return namesReply{}, err
	}
	if !ok || e.Type != mount.FSType {
		return namesReply{}, fmt.Errorf("names: no volume is mounted at %s", root)
	}
	return lookUp(root, namesRest, func(path string) error {
		_, err := os.Lstat(path)
		return err
	})
}

// lookUp lists a tree, waits for the time rest, and looks up each name.
func lookUp(root string, rest time.Duration, lstat func(string) error) (r namesReply, err error) {
	var all []string
	note := func(path string, err error) error {
		switch {
		case err == nil, errors.Is(err, fs.ErrNotExist): // removed meanwhile
			return nil
		case !errors.Is(err, syscall.EIO):
			return err
		}

		name := strings.TrimPrefix(path, root)
		if len(r.Torn) < mostSettled && !slices.Contains(r.Torn, name) {
			r.Torn = append(r.Torn, name)
		}

		return nil
	}

	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			if err = note(path, err); err == nil && e != nil && e.IsDir() {
				err = fs.SkipDir
			}
			return err
		}

		if path != root {
			all = append(all, path)
		}

		if len(all) >= mostNames {
			return fs.SkipAll
		}

		return nil
	})
	if err != nil {
		return r, fmt.Errorf("names: %w", err)
	}

	time.Sleep(rest)
	type answer struct {
		path string
		err  error
	}

	paths, answers := make(chan string), make(chan answer)
	var wg sync.WaitGroup
	for range namesAtOnce {
		wg.Go(func() {
			for p := range paths {
				answers <- answer{p, lstat(p)}
			}
		})
	}

	go func() {
		for _, p := range all {
			paths <- p
		}
		close(paths)
		wg.Wait()
		close(answers)
	}()

	var fault error
	for a := range answers {
		r.Looked++
		if err := note(a.path, a.err); err != nil && fault == nil {
			fault = fmt.Errorf("names: %w", err)
		}
	}

	slices.Sort(r.Torn)
	return r, fault
}
