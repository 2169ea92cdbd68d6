package repos

import (
	"errors"
	"fmt"
	"slices"

	"saltern/master/conf"
	"saltern/master/internal/gitpillar"
	"saltern/master/internal/gitremote"
)

// Check returns an error if the options of gitfs or git_pillar are invalid. It uses neither disk
// nor network.
func Check(c *conf.Master) error {
	var errs []error
	if slices.Contains(c.FileserverBackend, "gitfs") {
		if _, _, err := fileRemotes(c); err != nil {
			errs = append(errs, err)
		}
	}

	entries := gitpillar.Entries(c.ExtPillar)
	if len(entries) == 0 || !c.GitPillarVerifyConfig {
		return errors.Join(errs...)
	}

	defaults := pillarDefaults(c)
	for _, e := range entries {
		list, ok := e.([]any)
		if !ok {
			errs = append(errs, errors.New("option ext_pillar: what follows git: is a list of remotes"))
		}

		for _, r := range list {
			if _, err := defaults.Parse(gitremote.Pillar, r); err != nil {
				errs = append(errs, fmt.Errorf("option ext_pillar: %w", err))
			}
		}
	}

	return errors.Join(errs...)
}

// fileRemotes returns the remotes of gitfs, and the environment settings that apply to all remotes.
func fileRemotes(c *conf.Master) (remotes []gitremote.Remote, global map[string]gitremote.Env, err error) {
	defaults, err := filesDefaults(c)
	if err != nil {
		return nil, nil, err
	}

	var errs []error
	for _, e := range c.GitfsRemotes {
		r, err := defaults.Parse(gitremote.Files, e)
		if err != nil {
			errs = append(errs, fmt.Errorf("option gitfs_remotes: %w", err))
			continue
		}
		remotes = append(remotes, r)
	}

	return remotes, defaults.Global, errors.Join(errs...)
}
