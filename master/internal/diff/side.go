package diff

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"saltern/master/internal/gitpillar"
	"saltern/master/internal/pillar"
	"saltern/master/internal/pillar/memo"
	"saltern/master/internal/pillar/renderer"
	"saltern/master/value"
)

// side is one side of a comparison.
type side struct {
	pillars *pillar.Compiler
}

// side returns a side of a comparison. work is a directory for copies that does not exist yet.
func (s *Service) side(ctx context.Context, r Request, what What, work string, pool *renderer.Pool) (*side, error) {
	cfg := s.cfg.Pillar
	cfg.Renderers = pool
	cfg.Memo = memo.New(memo.Config{})
	cfg.Log = slog.New(slog.DiscardHandler)
	cfg.ShowRenderErrors = false
	cfg.PillarOpts = false
	compare := &pillar.Compare{Confined: !s.cfg.Trusted, Hide: s.names.hide}
	cfg.Compare = compare

	if what.Folder != "" {
		env := cmp.Or(r.Env, "base")
		if len(cfg.Roots[env]) == 0 {
			return nil, fmt.Errorf("pillar_roots has no environment %.60q that a folder could take the place of; see env=", env)
		}
		copied, err := s.copyFolder(ctx, what.Folder, work)
		if err != nil {
			return nil, err
		}
		cfg.Roots = maps.Clone(cfg.Roots)
		cfg.Roots[env] = []string{copied}
		compare.Untrusted = append(compare.Untrusted, copied)
	}

	switch {
	case cfg.Git != nil:
		pinned, err := cfg.Git.Pin(ctx, gitpillar.Pin{Ref: what.Ref, Remote: r.Remote, Into: r.Into})
		if err != nil {
			return nil, fmt.Errorf("compare %s: %w", what, err)
		}
		cfg.Git = pinned.Source
		for _, dir := range slices.Sorted(maps.Values(pinned.Trees)) {
			compare.Untrusted = append(compare.Untrusted, dir, dir+".mounts")
		}
	case what.Ref != "":
		return nil, fmt.Errorf("compare %s: this master has no pillars from git (ext_pillar); compare a folder with folder=", what)
	}

	return &side{pillars: pillar.New(cfg)}, nil
}

// decryptedPlaces returns the places of the option decrypt_pillar. It has the forms of
// salt/pillar/__init__.py decrypt_pillar.
func decryptedPlaces(option any, delimiter string) (places [][]any) {
	list, ok := option.([]any)
	if !ok && option != nil {
		list = []any{option}
	}
	add := func(place string) {
		places = append(places, value.List(strings.Split(place, cmp.Or(delimiter, ":"))))
	}
	for _, entry := range list {
		switch entry := entry.(type) {
		case string:
			add(entry)
		case *value.Map:
			for k := range entry.All() {
				add(value.Str(k))
			}
		}
	}
	return places
}
