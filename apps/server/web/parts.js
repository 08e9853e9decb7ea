todo
