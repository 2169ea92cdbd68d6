package runner

import (
	"fmt"
	"slices"

	"saltern/master/value"
)

// filesDefs returns the runners of Salt's module fileserver. Sources: salt/runners/fileserver.py,
// salt/fileserver/__init__.py.
func filesDefs() map[string]def {
	return map[string]def{
		"fileserver.envs":                  {"backend= sources=", filesEnvs},
		"fileserver.file_list":             {"saltenv= backend=", filesList("_file_list")},
		"fileserver.dir_list":              {"saltenv= backend=", filesList("_dir_list")},
		"fileserver.empty_dir_list":        {"saltenv= backend=", filesList("_file_list_emptydirs")},
		"fileserver.symlink_list":          {"saltenv= backend=", filesList("_symlink_list")},
		"fileserver.update":                {"backend= **", filesUpdate},
		"fileserver.clear_cache":           {"backend=", filesClearCache},
		"fileserver.clear_file_list_cache": {"saltenv= backend=", filesClearLists},
		// This master's file server takes no locks, so there are never locks to remove.
		"fileserver.clear_lock": {"backend= remote=", func(*call) (any, error) { return "No locks were removed", nil }},
		"fileserver.lock":       {"backend= remote=", func(*call) (any, error) { return "No locks were set", nil }},
	}
}

func (c *call) backends() ([]string, error) {
	if err := requirePart("file server", c.Files == nil); err != nil {
		return nil, err
	}
	return c.Files.Backends(orNil(c.values["backend"])), nil
}

func filesEnvs(c *call) (any, error) {
	backends, err := c.backends()
	if err != nil {
		return nil, err
	}

	var all []string
	for _, b := range backends {
		envs, err := c.Files.Envs(c.ctx, b)
		if err != nil {
			return nil, err
		}
		all = append(all, envs...)
	}

	if c.flagArgument("sources", false) {
		// Salt sorts a map at this point, which leaves only the map's keys.
		slices.Sort(backends)
		return anyList(backends), nil
	}

	slices.Sort(all)
	return anyList(slices.Compact(all)), nil
}

func filesList(cmd string) func(*call) (any, error) {
	return func(c *call) (any, error) {
		if err := requirePart("file server", c.Files == nil); err != nil {
			return nil, err
		}
		load := value.NewMap("saltenv", c.textOr("saltenv", "base"), "prefix", "")
		if b := c.values["backend"]; value.Truth(b) {
			load.Set("fsbackend", anyList(splitInput(b)))
		}
		return c.Files.Call(c.ctx, cmd, load)
	}
}

func filesUpdate(c *call) (any, error) {
	backends, err := c.backends()
	if err != nil {
		return nil, err
	}
	if err := c.Files.Update(c.ctx, backends); err != nil {
		return nil, err
	}
	return true, nil
}

func filesClearCache(c *call) (any, error) {
	backends, err := c.backends()
	if err != nil {
		return nil, err
	}

	var cleared, failed []any
	for _, b := range backends {
		switch has, err := c.Files.ClearCache(c.ctx, b); {
		case err != nil:
			failed = append(failed, err.Error())
		case has:
			cleared = append(cleared, fmt.Sprintf("The %s fileserver cache was successfully cleared", b))
		}
	}

	out := &value.Map{}
	if cleared != nil {
		out.Set("cleared", cleared)
	}

	if failed != nil {
		out.Set("errors", failed)
	}

	if out.Len() == 0 {
		return "No cache was cleared", nil
	}

	return out, nil
}

func filesClearLists(c *call) (any, error) {
	backends, err := c.backends()
	if err != nil {
		return nil, err
	}

	cleared, err := c.Files.ClearLists(c.ctx, backends, splitInput(c.values["saltenv"]))
	if err != nil {
		return nil, err
	}

	out := &value.Map{}
	for _, b := range sortedKeys(cleared) {
		envs := slices.Sorted(slices.Values(cleared[b]))
		out.Set(b, anyList(envs))
	}

	return out, nil
}
