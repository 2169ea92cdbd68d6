// Package value holds Salt's values as the master handles them, independent of their encoding.
// Values are nil, bool, int64, uint64 (only above the range of int64), float64, string, []byte,
// []any, *Map (maps keep their order, which signatures and pillars depend on) and Ext. The package
// holds no state. A *Map must not be modified by two goroutines at once.
package value
