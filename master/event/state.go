package event

import (
	"strings"

	"saltern/master/history/summary"
	"saltern/master/value"
)

// maxStateErrors is how many failed states of one return may cause events.
const maxStateErrors = 1000

// FireStateErrors fires the events that Salt adds for failed states when a state run returns with a
// return code. For each state with result false it fires one event tagged "<module>.<function>" and
// one tagged salt/job/<jid>/sub/<id>/error/<fun>. For other returns it fires nothing. At most
// maxStateErrors states of one return cause events. The first tag contains text from the minion;
// FireStateErrors fires that event only if the tag looks like the name of a state function, so that
// no minion can forge other tags. The minion is the maker of the events, as with [Bus.FireFor].
// Sources: salt/utils/event.py fire_ret_load, SUB_EVENT.
func (b *Bus) FireStateErrors(load *value.Map) {
	v, codes := load.Value("return"), load.Value("retcode")
	if fun := load.Str("fun"); fun != "" {
		b.stateErrors(load, fun, v, codes)
		return
	}
	for i, f := range load.List("fun") {
		fun, _ := f.(string)
		b.stateErrors(load, fun, summary.AnswerOf(v, fun, i), summary.AnswerOf(codes, fun, i))
	}
}

func (b *Bus) stateErrors(load *value.Map, fun string, ret, retcode any) {
	if fun != "state.sls" && fun != "state.highstate" {
		return
	}

	states, ok := ret.(*value.Map)
	if code, _ := retcode.(int64); code == 0 || !ok {
		return
	}

	n, id := 0, load.Str("id")
	for k, v := range states.All() {
		key, _ := k.(string)
		chunk, ok := v.(*value.Map)
		if !ok || key == "" {
			continue
		}

		if result, isBool := chunk.Value("result").(bool); !isBool || result {
			continue
		}

		n++
		if n > maxStateErrors {
			return
		}

		parts := strings.Split(key, "_|-")
		name := parts[0] + "." + parts[len(parts)-1]
		data := chunk.Clone()
		data.Set("retcode", retcode)

		if functionName(name) {
			b.FireFor(id, name, data)
		}

		sub := data.Clone()
		sub.Set("jid", load.Value("jid"))
		sub.Set("id", load.Value("id"))
		sub.Set("success", false)
		sub.Set("return", "Error: "+name)
		sub.Set("fun", fun)

		if user, ok := load.Get("user"); ok {
			sub.Set("user", user)
		}

		b.FireFor(id, Tag("job", load.Str("jid"), "sub", id, "error", fun), sub)
	}
}

// functionName reports whether s is <module>.<function>.
func functionName(s string) bool {
	dots := 0
	for i := range len(s) {
		c := s[i]
		switch {
		case c == '.':
			dots++
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_':
		default:
			return false
		}
	}
	return dots == 1 && len(s) <= 128
}
