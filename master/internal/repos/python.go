package repos

import (
	"context"
	"slices"

	"saltern/master/internal/gitpillar"
	"saltern/master/value"
)

// FileOptions returns values of file_roots and fileserver_backend. With these values Salt's library
// reads the files that gitfs serves in the environments base and saltenv from this disk.
// FileOptions returns an empty map if gitfs is not configured.
func (s *Service) FileOptions(ctx context.Context, saltenv string) *value.Map {
	out := value.NewMap()
	if s.files == nil {
		return out
	}

	c := s.cfg.Options
	var backends []string
	for _, b := range c.FileserverBackend {
		if b != "gitfs" && b != "roots" {
			backends = append(backends, b)
		}
	}

	git := slices.Index(c.FileserverBackend, "gitfs")
	roots := slices.Index(c.FileserverBackend, "roots")
	all := value.NewMap()
	if roots >= 0 {
		for env, dirs := range c.FileRoots {
			all.Set(env, value.List(dirs))
		}
	}

	envs := []string{"base"}
	if saltenv != "" && saltenv != "base" {
		envs = append(envs, saltenv)
	}

	for _, env := range envs {
		dirs, err := s.files.Dirs(ctx, env)
		if err != nil {
			s.cfg.Log.Error("files from git are missing for Python", "saltenv", env, "error", err)
			continue
		}
		if len(dirs) == 0 {
			continue
		}

		own := all.List(env)
		if git < roots {
			all.Set(env, append(value.List(dirs), own...))
		} else {
			all.Set(env, append(slices.Clone(own), value.List(dirs)...))
		}
	}

	out.Set("file_roots", all)
	out.Set("fileserver_backend", value.List(append([]string{"roots"}, backends...)))
	return out
}

// PillarRoots returns the directories of each git entry in ext_pillar, in the form that Salt's own
// Pillar class expects (see [gitpillar.ForPython]).
func (s *Service) PillarRoots(ctx context.Context, pillarenv, saltenv string) []any {
	out := []any{}
	if s.pillars == nil {
		return out
	}
	for n := range s.pillars.Len() {
		roots, err := s.pillars.Roots(ctx, n, pillarenv, saltenv)
		if err != nil {
			s.cfg.Log.Error("git pillars are missing for Python", "error", err)
		}
		out = append(out, gitpillar.ForPython(roots))
	}
	return out
}

// ForPython returns the results of FileOptions and PillarRoots.
func (s *Service) ForPython(ctx context.Context, saltenv, pillarenv string) (options *value.Map, pillars []any) {
	return s.FileOptions(ctx, saltenv), s.PillarRoots(ctx, pillarenv, saltenv)
}
