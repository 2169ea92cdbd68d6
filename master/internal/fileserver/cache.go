package fileserver

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"saltern/master/value"
)

// maxCachedLists bounds the number of cached lists. With __env__ every name that a minion invents
// is an environment. Overflow policy: further lists are built for each request.
const maxCachedLists = 200

// maxCachedNames bounds the number of names in the lists of Updaters, because these lists do not
// expire. Overflow policy: the least recently used lists are dropped. One name takes some 100
// bytes.
const maxCachedNames = 400000

type listKey struct{ backend, env string }

// cachedList is a sorted listing in the form that is sent to minions.
type cachedList struct {
	files, dirs, emptyDirs []any
	links                  *value.Map
	made                   time.Time  // time at which the walk that read the directories began
	at                     []dirState // state of the listed directories; nil: unknown
	known                  bool       // the backend has this environment
	version                string     // Updater.Version when the list was made
	used                   time.Time
	looked                 time.Time // when the directories were last found unchanged; guarded by Server.mu
}

func (c *cachedList) names() int {
	return len(c.files) + len(c.dirs) + len(c.emptyDirs) + c.links.Len()
}

func (s *Server) listing(ctx context.Context, b Backend, env string, since time.Time) (*cachedList, error) {
	key := listKey{b.Name(), env}
	version := ""
	u, updates := b.(Updater)
	if updates {
		version = u.Version()
	}

	s.mu.Lock()
	c := s.cached[key]
	if c != nil {
		c.used = s.cfg.Now()
	}
	s.mu.Unlock()

	if c != nil && updates && c.version == version {
		return c, nil
	}

	if c != nil && !updates {
		if s.isCurrent(c, since) {
			return c, nil
		}
	}

	for {
		c, err := s.walkFor(ctx, b, key, version)
		if err != nil || updates || !c.made.Before(since) {
			return c, err
		}
		// walkFor returned the result of a walk that began before since. Try again.
	}
}

// isCurrent reports whether a list is as new as since: the list was made or checked after since, or
// none of its directories has changed.
func (s *Server) isCurrent(c *cachedList, since time.Time) bool {
	now := s.cfg.Now()
	s.mu.Lock()
	looked := c.looked
	s.mu.Unlock()

	if age := now.Sub(c.made); age < 0 || age >= s.cfg.ListCacheTime {
		return false
	}
	if !c.made.Before(since) || !looked.Before(since) {
		return true
	}
	if !unchanged(c.at) {
		return false
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	c.looked = now
	return true
}

// walkFor builds a list. Concurrent callers share one walk of the directories.
func (s *Server) walkFor(ctx context.Context, b Backend, key listKey, version string) (*cachedList, error) {
	v, err, _ := s.lists.Do(key.backend+"\x00"+version+"\x00"+key.env, func() (any, error) {
		begun := s.cfg.Now()

		// Other callers may wait for this walk, so ctx does not end it.
		l, err := b.List(context.WithoutCancel(ctx), key.env)
		if err != nil {
			return nil, err
		}

		c := &cachedList{made: begun, links: value.NewMap(), known: l != nil, version: version}
		if l != nil {
			c.at = settledDirs(l.dirs, begun)
			c.files = value.List(slices.Sorted(maps.Keys(l.Files)))
			c.dirs = value.List(slices.Sorted(maps.Keys(l.Dirs)))
			c.emptyDirs = value.List(slices.Sorted(maps.Keys(l.EmptyDirs)))
			for _, k := range slices.Sorted(maps.Keys(l.Links)) {
				c.links.Set(k, l.Links[k])
			}
		}

		s.keepList(key, c)
		return c, nil
	})
	if err != nil {
		return nil, err
	}

	return v.(*cachedList), nil
}

func (s *Server) keepList(key listKey, c *cachedList) {
	if s.cfg.ListCacheTime < 0 || !c.known {
		return
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.cached[key]; !there && len(s.cached) >= maxCachedLists {
		maps.DeleteFunc(s.cached,
			func(_ listKey, old *cachedList) bool { return c.made.Sub(old.made) >= s.cfg.ListCacheTime })
		if len(s.cached) >= maxCachedLists {
			return
		}
	}

	c.used = s.cfg.Now()
	s.cached[key] = c
	if c.version == "" {
		return
	}

	sum := 0
	for _, k := range slices.SortedFunc(maps.Keys(s.cached),
		func(a, b listKey) int { return s.cached[b].used.Compare(s.cached[a].used) }) {
		if old := s.cached[k]; old.version != "" {
			if sum += old.names(); sum > maxCachedNames && old != c {
				delete(s.cached, k)
			}
		}
	}
}

// answerList answers the requests for lists of files, of directories and of empty directories. part
// selects the list.
func (s *Server) answerList(ctx context.Context, id string, load *value.Map, part func(*cachedList) []any) (any, error) {
	env, prefix, ok := listArgs(load)
	if !ok {
		return []any{}, nil
	}

	var out []any
	since := s.cfg.Since(id)
	back, _ := load.Get("fsbackend")
	for _, b := range s.chooseBackends(back) {
		c, err := s.listing(ctx, b, env, since)
		if err != nil {
			return nil, err
		}

		if out == nil {
			out = part(c)
		} else if more := part(c); len(more) > 0 {
			out = mergeSorted(out, more)
		}
	}

	if prefix != "" {
		var some []any
		for _, v := range out {
			if strings.HasPrefix(v.(string), prefix) {
				some = append(some, v)
			}
		}
		out = some
	}

	if out == nil {
		out = []any{}
	}

	return out, nil
}

func (s *Server) symlinks(ctx context.Context, id string, load *value.Map) (any, error) {
	out := value.NewMap()
	env, prefix, ok := listArgs(load)
	if !ok {
		return out, nil
	}

	since := s.cfg.Since(id)
	back, _ := load.Get("fsbackend")
	for _, b := range s.chooseBackends(back) {
		c, err := s.listing(ctx, b, env, since)
		if err != nil {
			return nil, err
		}

		for k, v := range c.links.All() {
			if strings.HasPrefix(k.(string), prefix) {
				out.Set(k, v)
			}
		}
	}

	return out, nil
}

func listArgs(load *value.Map) (env, prefix string, ok bool) {
	v, has := load.Get("saltenv")
	if !has {
		return "", "", false
	}
	env, ok = textOf(v)
	return env, strings.Trim(load.Str("prefix"), "/"), ok && len(env) <= 255
}

// mergeSorted merges two sorted lists of texts.
func mergeSorted(a, b []any) []any {
	out := append(slices.Clone(a), b...)
	slices.SortFunc(out, func(x, y any) int { return strings.Compare(x.(string), y.(string)) })
	return slices.Compact(out)
}
