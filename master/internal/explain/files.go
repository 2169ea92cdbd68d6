package explain

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strings"

	"saltern/internal/control"
	"saltern/internal/printable"
	"saltern/master/cache"
	"saltern/master/internal/pillar"
	"saltern/master/keys"
	"saltern/master/value"
)

// Bounds of what is shown of files.
const (
	maxOthers  = 10  // lines of top files that do not select the minion
	maxMatches = 200 // that do
	maxKeys    = 500
)

// explainFiles adds the lines of top files that select a minion, and which file has which key of its
// pillar. key is the only key that is asked for, or "".
func (s *Service) explainFiles(ctx context.Context, f *facts, key string, out *control.Explanation) {
	ctx, cancel := context.WithTimeout(ctx, partFor)
	defer cancel()
	id := f.id
	if !f.accepted() && !keys.IsPlainID(id) { // commands of ext_pillar get ids without quotes
		note := "no accepted key has this id, and it has characters that a shell may obey"
		out.States.Note = note
		out.Pillar.Problem = note
		return
	}

	grains, known := s.cfg.Cache.Get(cache.Grains, id)
	if !known {
		note := "the grains of the minion are not known: it has not asked for a pillar since minion_data_cache is on"
		out.States.Note = note
		out.Pillar.Problem = note
		return
	}

	req := pillar.Request{ID: id, Grains: grains}
	s.explainPillar(ctx, req, key, &out.Pillar)
	kept, _ := s.cfg.Cache.Get(cache.Pillar, id)
	s.explainStates(ctx, req, cmp.Or(kept, value.NewMap()), &out.States)
}

// explainPillar adds the lines of the top files of pillars, and what gives the keys of the first level, or
// those that key selects if it is not "".
func (s *Service) explainPillar(ctx context.Context, req pillar.Request, key string, out *control.ExplainedPillar) {
	path, err := pillar.SplitKey(cmp.Or(key, "*"))
	if err != nil {
		out.Problem = problemOf(err)
		return
	}
	origins, err := s.cfg.Compiler.Origins(ctx, req)
	if err != nil {
		out.Problem = problemOf(err)
		return
	}

	lines, lost := origins.Lines()
	out.Top = topOf(lines)
	out.Top.More += lost
	out.Faults = origins.Faults
	origins.Find(path, func(found []string, _ any, sources []pillar.Source) {
		of := control.ExplainedPillarOf{Key: clipLine(pillar.JoinKey(found))}
		if len(sources) == 0 {
			out.Keys = appendKey(out.Keys, of)
		}
		for _, source := range sources {
			from := origins.Files[source.File]
			of.SLS = clipLine(from.SLS)
			of.Env = from.Env
			of.File = from.Path
			of.External = clipLine(from.External)
			of.Replaced = !source.Gives
			out.Keys = appendKey(out.Keys, of)
		}
	})
	if len(out.Keys) > maxKeys {
		out.Keys = out.Keys[:maxKeys]
		out.Problem = "there are more keys: ask for one by key="
	}
}

// appendKey adds a key if there are not too many.
func appendKey(keys []control.ExplainedPillarOf, k control.ExplainedPillarOf) []control.ExplainedPillarOf {
	if len(keys) > maxKeys {
		return keys
	}
	return append(keys, k)
}

// explainStates adds the lines of the top files of states.
func (s *Service) explainStates(ctx context.Context, req pillar.Request, kept *value.Map, out *control.ExplainedTop) {
	name := cmp.Or(strings.TrimPrefix(s.cfg.Options.StateTop, "salt://"), "top.sls")
	var tops []pillar.TopFile
	envs := s.cfg.Files.Envs(nil)
	slices.SortFunc(envs, func(a, b string) int {
		if (a == "base") != (b == "base") {
			return map[bool]int{true: -1, false: 1}[a == "base"]
		}
		return strings.Compare(a, b)
	})
	for _, env := range envs {
		path, ok, err := s.cfg.Files.Locate(ctx, "salt://"+name+"?saltenv="+url.QueryEscape(env))
		if err != nil {
			out.Note = problemOf(err)
		}
		if ok {
			tops = append(tops, pillar.TopFile{Env: env, Path: path})
		}
	}
	if len(tops) == 0 {
		out.Note = cmp.Or(out.Note, "no environment has a "+name)
		return
	}

	lines, templates, err := s.cfg.Compiler.TraceTop(ctx, req, kept, tops)
	note := out.Note
	*out = topOf(lines)
	out.Note = note
	switch {
	case err != nil:
		out.Note = problemOf(err)
	case note != "":
	case templates:
		out.Note = "a top file is a template: the minion renders it with its own functions, and may see other lines"
	}
	if len(tops) > 1 {
		out.Note = strings.TrimPrefix(out.Note+"; "+severalTops, "; ")
	}
}

// severalTops is the note about top files of several environments.
const severalTops = "several environments have a top file, and the lines of all are shown: " +
	"which of them the minion uses depends on top_file_merging_strategy, default_top, and the environment of the run"

// topOf sorts the lines of top files by whether they select the minion.
func topOf(lines []pillar.Line) (out control.ExplainedTop) {
	for _, l := range lines {
		line := control.ExplainedLine{
			Top:    l.Top,
			Env:    l.Env,
			Target: printable.Line(l.Target),
			Type:   l.Type,
			SLS:    clipped(l.SLS),
		}
		switch {
		case l.Matches && len(out.Matches) < maxMatches:
			out.Matches = append(out.Matches, line)
		case !l.Matches && len(out.Others) < maxOthers:
			line.Why = whyNot(l)
			out.Others = append(out.Others, line)
		default:
			out.More++
		}
	}
	return out
}

// whyNot returns why a line does not select the minion.
func whyNot(l pillar.Line) string {
	const longest = 200
	if l.Fault != "" {
		return "the target cannot be used: " + printable.Clip(printable.Line(l.Fault), longest)
	}
	switch l.Type {
	case "glob":
		return "the id does not match the glob"
	case "pcre":
		return "the id does not match the regular expression"
	case "list":
		return "the id is not in the list"
	case "grain", "grain_pcre":
		return "no grain of the minion has this value, as far as the master knows its grains"
	case "pillar", "pillar_pcre", "pillar_exact":
		return "no key of its pillar has this value"
	case "nodegroup":
		return "it is not in the nodegroup"
	case "ipcidr":
		return "none of its addresses is in the network"
	}
	if !strings.ContainsAny(l.Target, " @") {
		return "the id does not match the glob"
	}
	return "the expression as a whole is false for the id, grains and pillar of the minion"
}

func clipped(list []string) (out []string) {
	for _, s := range list[:min(len(list), maxKeys)] {
		out = append(out, clipLine(s))
	}
	return out
}

func clipLine(s string) string { return printable.Clip(printable.Line(s), 200) }

// problemOf returns the first line of an error. The rest may have parts of a pillar.
func problemOf(err error) string {
	first, _, _ := strings.Cut(err.Error(), "\n")
	return printable.Clip(printable.Line(first), 300)
}
