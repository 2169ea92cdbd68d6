package runner

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"saltern/master/value"
)

// Limits of the names and the bytes that are shown.
const (
	maxShownNames = 2000
	maxShownFile  = 64 << 10
)

// showFilesDefs returns functions, which Salt lacks, for reading the master's files without a
// minion. Salt has only fileserver.file_list, which returns all names of an environment. The
// functions show exactly the files that minions get, by the same rules.
func showFilesDefs() map[string]def {
	return map[string]def{
		"files.list": {"saltenv= prefix=", filesBelow},
		"files.show": {"path saltenv=", filesShow},
	}
}

// filesBelow returns the environments, and the entries directly below a folder of one of them.
func filesBelow(c *call) (any, error) {
	if err := requirePart("file server", c.Files == nil); err != nil {
		return nil, err
	}

	envs, err := c.Files.Call(c.ctx, "_file_envs", value.NewMap())
	if err != nil {
		return nil, err
	}

	env, prefix := c.textOr("saltenv", "base"), strings.Trim(c.textArgument("prefix"), "/")
	got, err := c.Files.Call(c.ctx, "_file_list", value.NewMap("saltenv", env, "prefix", ""))
	if err != nil {
		return nil, err
	}

	all, _ := got.([]any)
	dirs, files := directlyBelow(all, prefix)
	total := len(dirs) + len(files)
	dirs = dirs[:min(len(dirs), maxShownNames)]
	files = files[:min(len(files), maxShownNames-len(dirs))]

	return value.NewMap("envs", envs, "saltenv", env, "prefix", prefix, "dirs", anyList(dirs), "files",
		anyList(files), "of", int64(total)), nil
}

// directlyBelow returns the sorted names of the folders and of the files directly below a folder.
// all is a list of paths of files.
func directlyBelow(all []any, folder string) (dirs, files []string) {
	if folder != "" {
		folder += "/"
	}

	for _, f := range all {
		name, _ := f.(string)
		rest, ok := strings.CutPrefix(name, folder)
		if !ok || rest == "" {
			continue
		}

		if dir, _, deeper := strings.Cut(rest, "/"); deeper {
			dirs = append(dirs, dir)
		} else {
			files = append(files, rest)
		}
	}

	slices.Sort(dirs)
	slices.Sort(files)
	return slices.Compact(dirs), slices.Compact(files)
}

// filesShow returns the beginning of a file if the file is text.
func filesShow(c *call) (any, error) {
	if err := requirePart("file server", c.Files == nil); err != nil {
		return nil, err
	}

	name, env := c.textArgument("path"), c.textOr("saltenv", "base")

	// The leading pipe makes the path a plain name: without it, options in the path could change
	// the environment.
	load := value.NewMap("path", "|"+name, "saltenv", env, "loc", int64(0))
	got, err := c.Files.Call(c.ctx, "_file_find", load)
	if err != nil {
		return nil, err
	}

	found, _ := got.(*value.Map)
	if found.Str("rel") == "" {
		return nil, &ArgumentError{Reason: fmt.Sprintf("no file %.200q is served in the environment %.100q", name, env)}
	}

	got, err = c.Files.Call(c.ctx, "_serve_file", load)
	if err != nil {
		return nil, err
	}

	chunk, _ := got.(*value.Map)
	data, _ := chunk.Value("data").([]byte)
	out := value.NewMap("path", found.Str("rel"), "saltenv", env, "backend", found.Str("back"))
	n := min(len(data), maxShownFile)
	for n > 0 && n < len(data) && !utf8.RuneStart(data[n]) {
		n--
	}

	size := int64(len(data)) // git remotes report no size, so use the length of the data
	if stat := found.List("stat"); len(stat) > 6 {
		told, _ := stat[6].(int64)
		size = max(size, told)
	}

	out.Set("size", size)
	if shown := data[:n]; bytes.IndexByte(shown, 0) >= 0 || !utf8.Valid(shown) {
		out.Set("binary", true)
	} else {
		out.Set("text", string(shown))
		out.Set("cut", size-int64(n))
	}

	return out, nil
}
