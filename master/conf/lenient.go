package conf

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"saltern/master/value"
)

// lenient decides about a value of the wrong type. Salt warns of every one and
// goes on with it (salt/config/__init__.py _validate_opts). So do we where that
// does what was meant: for true or false in other words, and for options that
// this master does not use, which keep their default. Permissions of minions grant
// nothing in both (salt/master.py, salt/daemons/masterapi.py). All else is a fault.
func (a *assembly) lenient(o option, v any, wrong error) (taken any, ok bool) {
	name := o.name
	if o.ignored() {
		a.remark(slog.LevelWarn, name, "%v; this master does not use the option", wrong)
		return nil, false
	}
	if name == "peer" || name == "peer_run" {
		a.remark(slog.LevelWarn, name, "%v; it grants nothing: write a map of minions to lists of functions", wrong)
		return &value.Map{}, true
	}

	if meant, clear := asTruth(v); clear && slices.Contains(o.types, "bool") {
		if says := value.Truth(v) && !slices.Contains(onlyTrue, name); says != meant {
			wrong = fmt.Errorf("%w, which Salt takes for %v: write %v", wrong, says, meant)
		} else {
			a.remark(slog.LevelWarn, name, "%v; it is taken for %v", wrong, meant)
			return meant, true
		}
	}

	a.bad(name, wrong)
	return nil, false
}

// onlyTrue are options that Salt compares with True itself, so that nothing else
// switches them on (salt/config/__init__.py apply_master_config, salt/master.py).
var onlyTrue = []string{"auth_events", "auto_accept", "minion_data_cache_events", "open_mode"}

// asTruth reads what whoever wrote a number or a text for true or false meant.
func asTruth(v any) (meant, clear bool) {
	switch v := v.(type) {
	case int64:
		return v == 1, v == 0 || v == 1
	case string:
		switch strings.ToLower(strings.TrimSpace(v)) {
		case "true", "yes", "on", "y", "1":
			return true, true
		case "false", "no", "off", "n", "0", "none", "null", "":
			return false, true
		}
	}
	return false, false
}
