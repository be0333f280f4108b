// Package share shares a value among users with the same settings.
package share

import "sync"

// Values holds values by key. A value exists while it has users. The zero Values is ready
// for use; it may be used concurrently.
type Values[K comparable, V any] struct {
	mu   sync.Mutex // guards used, and Value.users
	used map[K]*Value[K, V]
}

// Value is a value in use.
type Value[K comparable, V any] struct {
	V     V
	key   K
	all   *Values[K, V]
	users int
}

// Use returns the value of a key. build makes it for the first user. Each user calls Leave
// once.
func (v *Values[K, V]) Use(key K, build func() V) *Value[K, V] {
	v.mu.Lock()
	defer v.mu.Unlock()
	value := v.used[key]
	if value == nil {
		if v.used == nil {
			v.used = make(map[K]*Value[K, V])
		}
		value = &Value[K, V]{V: build(), key: key, all: v}
		v.used[key] = value
	}
	value.users++
	return value
}

// Leave ends a use, and reports whether it was the last one.
func (v *Value[K, V]) Leave() (last bool) {
	v.all.mu.Lock()
	defer v.all.mu.Unlock()
	if v.users--; v.users == 0 {
		delete(v.all.used, v.key)
	}
	return v.users == 0
}
