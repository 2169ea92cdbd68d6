package pyrunner

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"time"

	"saltern/master/internal/pyhost"
	"saltern/master/value"
)

const (
	// listFor is how long a listing is trusted while its directories do not change. The time is
	// bounded because a module may become loadable, or cease to be, without a change of its file.
	listFor = 10 * time.Minute

	// listWithin bounds how long Python takes to list its functions. In that time other callers wait. A
	// module that takes longer than loadWithin to load is left out, and its name logged.
	listWithin = time.Minute
	loadWithin = 10 * time.Second

	maxDirs      = 64
	maxEntries   = 4096
	maxFunctions = 20000
)

// listing holds the names of the functions that Python has.
type listing struct {
	names   map[string]bool
	dirs    []string
	stamp   uint64
	trusted bool // no file changed shortly before the listing
	// incomplete means that a module took too long to load. A function that is not listed may exist then:
	// its call loads that module alone.
	incomplete bool
	askedAt    time.Time // time at which the caller asked Python
}

// exists returns an error if Python has no function of this name. If the Caller has no listing of
// the functions, it requests one from Python, once for all concurrent callers. If Python cannot
// list them, exists returns nil: the call itself then fails for an unknown function.
func (c *Caller) exists(ctx context.Context, fun string) error {
	unknown := &UnknownError{fun}
	if !strings.Contains(fun, ".") {
		return unknown
	}

	switch c.hasFunction(fun) {
	case yes:
		return nil
	case no:
		return unknown
	}

	asked := c.cfg.Now()
	select {
	case c.unsure <- struct{}{}:
		defer func() { <-c.unsure }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}

	if c.hasFunction(fun) == unsure && !c.learnt(asked) {
		if c.unlistable() {
			return nil
		}
		if err := c.fetchListing(ctx); err != nil {
			if ctx.Err() != nil || errors.Is(err, ErrNoSalt) {
				return err
			}
			c.noteUnlistable(err)
			return nil
		}
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.list; l != nil && !l.names[fun] && !l.incomplete { // c.list may be nil: the layer of packages has just changed
		return unknown
	}

	return nil
}

// Prepare starts Python if it does not run, and renews the list of functions. A call after that waits
// for neither.
func (c *Caller) Prepare(ctx context.Context) error {
	select {
	case c.unsure <- struct{}{}:
		defer func() { <-c.unsure }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if c.unlistable() {
		return nil
	}
	return c.fetchListing(ctx)
}

// unlistable reports whether Python failed to list its functions a short time ago.
func (c *Caller) unlistable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.listFailed.IsZero() && c.cfg.Now().Sub(c.listFailed) < listFor
}

// noteUnlistable records that Python cannot list its functions. Listing loads all modules, so a
// single module that ends or hangs the process prevents it. A call loads only the module of its
// function, and fails if there is no such function. So calls go on without the list until listFor
// has passed.
func (c *Caller) noteUnlistable(err error) {
	c.cfg.Log.Error("functions of Python cannot be listed: does a module end or hang the process that loads it?",
		"error", err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listFailed = c.cfg.Now()
}

// learnt reports whether the Caller has asked Python for its functions after since.
func (c *Caller) learnt(since time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.list != nil && c.list.askedAt.After(since)
}

// answer is the result of looking up a function in the listing.
type answer int

const (
	unsure answer = iota
	yes
	no
)

func (c *Caller) hasFunction(fun string) answer {
	layer := Layer(c.cfg.Layer)
	c.mu.Lock()
	if layer != c.layer {
		c.layer = layer
		c.list = nil
	}

	l := c.list
	known := l != nil && l.names[fun]
	c.mu.Unlock()

	switch {
	case known:
		return yes
	case l != nil && l.isFresh(c.cfg.Now()) && l.incomplete:
		return yes
	case l != nil && l.isFresh(c.cfg.Now()):
		return no
	}

	return unsure
}

// forget removes a function that no longer exists from the listing.
func (c *Caller) forget(fun string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.list != nil {
		delete(c.list.names, fun)
	}
}

// fetchListing requests the list of functions from Python.
func (c *Caller) fetchListing(ctx context.Context) error {
	asked := c.cfg.Now()
	reply, err := c.cfg.Host.Do(ctx, pyhost.Task{Request: c.request("list"), Limit: listWithin})
	if err != nil {
		return fmt.Errorf("ask Python for its functions: %w", err)
	}
	if text := reply.Str("error"); text != "" {
		return fmt.Errorf("ask Python for its functions: %s", text)
	}
	c.storeListing(reply, asked)
	return nil
}

// storeListing stores the list of functions in Python's reply.
func (c *Caller) storeListing(reply *value.Map, asked time.Time) {
	names := reply.Texts("functions")
	l := &listing{
		names:      make(map[string]bool, len(names)),
		askedAt:    asked,
		incomplete: reply.Bool("incomplete"),
	}

	for _, name := range names[:min(len(names), maxFunctions)] {
		l.names[name] = true
	}

	dirs := reply.Texts("dirs")
	l.dirs = dirs[:min(len(dirs), maxDirs)]
	var newest time.Time
	l.stamp, newest = stampOf(l.dirs)
	// File times are coarse: do not trust a listing of a directory that has just changed.
	l.trusted = time.Since(newest) > 2*time.Second && len(names) <= maxFunctions
	c.mu.Lock()
	defer c.mu.Unlock()

	c.list = l
	c.listFailed = time.Time{}
}

// isFresh reports whether the listing is up to date, so that a function that it lacks does not
// exist.
func (l *listing) isFresh(now time.Time) bool {
	if !l.trusted || now.Sub(l.askedAt) > listFor {
		return false
	}
	s, _ := stampOf(l.dirs)
	return s == l.stamp
}

// stampOf returns a number that changes when files in the directories change. It also returns the
// time of the newest file.
func stampOf(dirs []string) (uint64, time.Time) {
	h := fnv.New64a()
	var newest time.Time
	note := func(path string) {
		info, err := os.Stat(path)
		if err != nil {
			fmt.Fprintf(h, "%s\x00gone\x00", path)
			return
		}

		if t := info.ModTime(); t.After(newest) {
			newest = t
		}

		fmt.Fprintf(h, "%s\x00%d\x00%d\x00", path, info.Size(), info.ModTime().UnixNano())
	}

	left := maxEntries
	for _, d := range dirs {
		entries, err := os.ReadDir(d) // not the directory's own time, which changes when Python stores compiled files
		if err != nil {
			fmt.Fprintf(h, "%s\x00gone\x00", d)
			continue
		}

		for _, e := range entries {
			left--
			if left < 0 {
				break
			}
			if e.Name() == "__pycache__" {
				continue
			}

			path := filepath.Join(d, e.Name())
			if e.IsDir() {
				path = filepath.Join(path, "__init__.py")
			}

			note(path)
		}
	}

	return h.Sum64(), newest
}
