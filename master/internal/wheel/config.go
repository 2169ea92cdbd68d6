package wheel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"saltern/internal/durable"
	"saltern/master/saltyaml"
)

func configFunctions() map[string]function {
	return map[string]function{
		"config.values": {nil, 0, func(_ context.Context, e *Env, _ args) (any, error) { return e.Values(), nil }},
		"config.apply": {[]string{"key", "value"}, 2, func(context.Context, *Env, args) (any, error) {
			return nil, errors.New("config.apply would rewrite the whole configuration file; use config.update_config, which writes a file of its own")
		}},
		"config.update_config": {[]string{"file_name", "yaml_contents"}, 2, updateConfig},
	}
}

// confName matches names of files inside the include directory. (CVE-2021-25282 used a path that
// led out of that directory.)
var confName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,100}$`)

func updateConfig(_ context.Context, e *Env, a args) (any, error) {
	name := a.textOf("file_name", "")
	if !confName.MatchString(name) {
		return "Invalid path", nil // the answer of Salt's function
	}
	if e.ConfigDir == "" {
		return nil, errors.New("applianced keeps the options of this master, for all nodes: write them below etc/master.d on the shared storage, then run `applianced config apply`")
	}

	text, err := saltyaml.Encode(a["yaml_contents"])
	if err != nil {
		return nil, fmt.Errorf("write a configuration file: %w", err)
	}

	dir := filepath.Dir(e.DefaultInclude)
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(e.ConfigDir, dir)
	}

	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("write a configuration file: %w", err)
	}

	file := name + ".conf"
	if err := durable.Replace(filepath.Join(dir, file), text, 0o640); err != nil {
		return nil, fmt.Errorf("write a configuration file: %w", err)
	}

	return "Wrote " + file, nil
}

func rootsFunctions(prefix string, pick func(*Env) Roots) map[string]function {
	with := func(f func(context.Context, Roots, args) (any, error)) func(context.Context, *Env, args) (any, error) {
		return func(ctx context.Context, e *Env, a args) (any, error) {
			r := pick(e)
			if r == nil {
				return nil, fmt.Errorf("%s are not served by this master", prefix)
			}

			if e.Newest != nil {
				e.Newest(ctx)
			}

			return f(ctx, r, a)
		}
	}

	env := func(a args) string { return a.textOf("saltenv", "base") }
	path := []string{"path", "saltenv"}
	return map[string]function{
		prefix + ".find": {path, 1, with(func(_ context.Context, r Roots, a args) (any, error) {
			return r.Find(a.textOf("path", ""), env(a)), nil
		})},
		prefix + ".list_env": {path[1:], 0,
			with(func(ctx context.Context, r Roots, a args) (any, error) { return r.ListEnv(ctx, env(a)) })},
		prefix + ".list_roots": {nil, 0,
			with(func(ctx context.Context, r Roots, _ args) (any, error) { return r.ListRoots(ctx) })},
		prefix + ".read": {path, 1, with(func(_ context.Context, r Roots, a args) (any, error) {
			return r.Read(a.textOf("path", ""), env(a)), nil
		})},
		prefix + ".write": {[]string{"data", "path", "saltenv", "index"}, 2,
			with(func(ctx context.Context, r Roots, a args) (any, error) {
				data, ok := a["data"].(string)
				if b, isBytes := a["data"].([]byte); isBytes {
					data, ok = string(b), true
				}

				if !ok {
					return nil, errors.New("data must be text")
				}

				return r.Write(ctx, data, a.textOf("path", ""), env(a), a.numberOf("index", 0))
			})},
	}
}
