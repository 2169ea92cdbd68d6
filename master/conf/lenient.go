package conf

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"saltern/master/value"
)

// lenient decides whether the master accepts a value of the wrong type. Salt warns about every such
// value and uses it (salt/config/__init__.py _validate_opts). lenient accepts a value if the
// intention is clear and Salt would act on it, such as a number or a text that means true or false.
// It also accepts any value of an option that this master does not use; then the option keeps its
// default. It accepts malformed permissions of minions, which grant nothing, as in Salt
// (salt/master.py, salt/daemons/masterapi.py). Everything else is a fault.
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

	a.addFault(name, wrong)
	return nil, false
}

// onlyTrue lists the options that Salt enables only for the value True (salt/config/__init__.py
// apply_master_config, salt/master.py).
var onlyTrue = []string{"auth_events", "auto_accept", "minion_data_cache_events", "open_mode"}

// asTruth interprets a number or a text as true or false; meant is the result. clear is false when
// the value may mean either.
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
