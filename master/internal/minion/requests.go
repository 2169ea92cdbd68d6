package minion

import (
	"cmp"
	"fmt"
	"iter"
	"strings"
	"time"

	"saltern/master/client"
	"saltern/master/internal/launch"
	"saltern/master/internal/pillar"
	"saltern/master/value"
)

// pillarRequest reads the pillar request from a _pillar load. ok is false if the load contains no
// grains.
func pillarRequest(id string, load *value.Map) (r pillar.Request, ok bool) {
	grains := load.Map("grains")
	if grains == nil {
		return r, false
	}

	grains.Set("id", id)
	return pillar.Request{
		ID:        id,
		Grains:    grains,
		Saltenv:   cmp.Or(load.Str("saltenv"), load.Str("env")),
		Pillarenv: load.Str("pillarenv"),
		Override:  load.Map("pillar_override"),
		Extra:     load.Map("extra_minion_data"),
		Ext:       load.Value("ext"),
	}, true
}

// eventRequest reads a _minion_event load, and yields the tag and the data of each event. The load
// contains either a list of events, to which it may add a common prefix for their tags, or one
// event whose data is the load itself.
func eventRequest(load *value.Map) iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		list, several := load.Value("events").([]any)
		if _, ok := load.Get("data"); !several && ok && load.Str("tag") != "" {
			yield(load.Str("tag"), load)
		}

		// Cut off a prefix that is too long. The events with that prefix are refused in any case;
		// the cut avoids copying the prefix for each of them.
		pretag := load.Str("pretag")
		pretag = pretag[:min(len(pretag), maxEventTag)]
		for _, e := range list {
			ev, ok := e.(*value.Map)
			if !ok {
				continue
			}

			data, ok := ev.Get("data")
			if !ok {
				data = ev
			}

			tag := ev.Str("tag")
			if pretag != "" && !yield(pretag+"/"+tag[:min(len(tag), maxEventTag)], data) || !yield(tag, data) {
				return
			}
		}
	}
}

// jidRequest returns the job id from a pub_ret load. In the load it may be a number.
func jidRequest(load *value.Map) string {
	if n, ok := load.Int("jid"); ok {
		return fmt.Sprint(n)
	}
	return load.Str("jid")
}

// jobRequest is the job in the load of minion_pub, minion_publish or minion_runner.
type jobRequest struct {
	fun      string
	arg      []any           // arguments as on a command line
	noParse  map[string]bool // names of arguments whose values must not be parsed as YAML
	tgt, ret any
	tgtType  string
	wait     time.Duration // how long to wait for returns; 0: the default of the master's tools
	full     bool          // also return the job id, and the id of the minion with each return
}

// newJobRequest reads a jobRequest from a load.
func newJobRequest(load *value.Map) jobRequest {
	r := jobRequest{
		fun:     load.Str("fun"),
		arg:     load.List("arg"),
		noParse: map[string]bool{},
		tgt:     load.Value("tgt"),
		tgtType: launch.TargetType(load),
		ret:     load.Value("ret"),
		full:    load.Str("form") == "full",
	}

	for _, s := range load.Texts("no_parse") {
		r.noParse[s] = true
	}

	for _, k := range []string{"tmo", "timeout"} {
		if n, ok := load.Int(k); ok && n > 0 {
			r.wait = time.Duration(min(n, int64(maxPeerWait/time.Second))) * time.Second
		}
	}

	return r
}

// functionsAndArgs returns the function and its arguments, or a list of functions and a list of
// their arguments. With several functions there must be one text of arguments for each; otherwise
// ok is false.
func (r jobRequest) functionsAndArgs() (fun, arg any, ok bool) {
	if !strings.Contains(r.fun, ",") {
		return r.fun, r.arguments(), true
	}
	if strings.Count(r.fun, ",") >= launch.MaxFunctions {
		return nil, nil, false
	}

	names := strings.Split(r.fun, ",")
	args := make([]any, len(names))
	for i := range names {
		var text string
		if i < len(r.arg) {
			if text, ok = r.arg[i].(string); !ok {
				return nil, nil, false
			}
		}
		args[i] = value.List(strings.Fields(text))
	}

	return value.List(names), args, true
}

// arguments returns the parsed arguments of one function. A text is parsed as YAML. name=value is a
// named argument (salt/utils/args.py parse_input).
func (r jobRequest) arguments() []any {
	out, named := client.SplitArgs(r.arg, func(name, text string) any {
		if r.noParse[name] {
			return text
		}
		return client.Yamlify(text)
	})

	if named.Len() > 0 {
		named.Set("__kwarg__", true)
		out = append(out, named)
	}

	return out
}
