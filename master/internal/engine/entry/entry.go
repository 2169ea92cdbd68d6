// Package entry parses the option engines.
//
// Source: salt/engines/__init__.py (start_engines).
package entry

import (
	"errors"
	"fmt"

	"saltern/master/value"
)

const (
	// maxEngines bounds the number of engines.
	maxEngines = 64

	moduleKey   = "engine_module"
	eachNodeKey = "saltern_each_node"
)

// Entry is one entry of the option engines.
type Entry struct {
	Name      string
	Module    string     // option engine_module; "" means Name
	Arguments *value.Map // arguments of the module's function start
	EachNode  bool       // runs on every master of a cluster, not only on the owner
}

// Parse parses the option engines. The option is a list whose elements are names, or maps from one
// name to its settings; or it is one map of names to settings. faults describes the invalid
// entries; entries contains only valid ones.
func Parse(option any) (entries []Entry, faults []error) {
	list, isList := option.([]any)
	byName, isMap := option.(*value.Map)
	for name, settings := range byName.All() {
		list = append(list, value.NewMap(name, settings))
	}

	if option != nil && !isList && !isMap {
		return nil, []error{errors.New("it is neither a list nor a map")}
	}

	named := map[string]int{} // number of entries by name
	for i, item := range list {
		e, err := parseEntry(item)
		if err == nil && len(entries) == maxEngines {
			err = fmt.Errorf("%d engines are the most", maxEngines)
		}

		if err != nil {
			faults = append(faults, fmt.Errorf("entry %d does not run: %w", i+1, err))
			continue
		}

		named[e.Name]++
		// A number distinguishes entries with the same name in logs and metrics.
		if named[e.Name] > 1 {
			e.Name = fmt.Sprintf("%s %d", e.Name, named[e.Name])
		}

		entries = append(entries, e)
	}

	return entries, faults
}

func parseEntry(item any) (Entry, error) {
	if name, ok := item.(string); ok && name != "" {
		return Entry{Name: name, Module: name, Arguments: value.NewMap()}, nil
	}

	named, ok := item.(*value.Map)
	if !ok || named.Len() != 1 {
		return Entry{}, errors.New("it is neither a name nor a map of one name to its settings")
	}

	for key, settings := range named.All() {
		name, text := key.(string)
		arguments, isMap := settings.(*value.Map)
		if !text || name == "" || !isMap && settings != nil {
			break
		}

		e := Entry{Name: name, Module: name, Arguments: arguments.Clone()}
		if module := arguments.Str(moduleKey); module != "" {
			e.Module = module
		}

		e.EachNode = arguments.Bool(eachNodeKey)
		e.Arguments.Delete(moduleKey)
		e.Arguments.Delete(eachNodeKey)
		return e, nil
	}

	return Entry{}, errors.New("its settings are no map")
}
