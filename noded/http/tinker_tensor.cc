// SPDX-License-Identifier: Apache-2.0
#include "http/tinker_tensor.h"

#include <cmath>
#include <cstring>

#include "http/proto_wire.h"

namespace plexrl::http {
namespace {

// Elements of one tensor: what a datum of any model here may have, and no more memory for zeros
// than a body may bring.
constexpr std::int64_t kMaxElements = std::int64_t{1} << 22;
constexpr std::size_t kMaxDimensions = 8;

enum DType : std::uint64_t { kFloat32 = 1, kInt64 = 2 };

Status broken(const char* what) {
  return error(Code::INVALID_ARGUMENT, "%s is no protobuf message as Tinker has it", what);
}

template <class T>
Result<std::vector<T>> raw_array(std::string_view bytes, const char* what) {
  if (bytes.size() % sizeof(T) != 0)
    return error(Code::INVALID_ARGUMENT, "%s has %zu bytes, which are no elements of %zu each",
                 what, bytes.size(), sizeof(T));
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

Status read_values(std::string_view bytes, TinkerTensor& tensor) {
  if (tensor.whole) {
    PLEXRL_ASSIGN(tensor.ints, raw_array<std::int64_t>(bytes, "a tensor of int64"));
  } else {
    PLEXRL_ASSIGN(tensor.floats, raw_array<float>(bytes, "a tensor of float32"));
  }
  return {};
}

struct SparseBytes {
  std::string_view values, rows, columns;
};

Result<SparseBytes> read_sparse(std::string_view message) {
  SparseBytes sparse;
  ProtoReader fields(message);
  while (fields.next()) {
    std::string_view* const part = fields.number() == 1   ? &sparse.values
                                   : fields.number() == 2 ? &sparse.rows
                                   : fields.number() == 3 ? &sparse.columns
                                                          : nullptr;
    if (part == nullptr) continue;
    if (!fields.is_bytes()) return broken("sparse_csr");
    *part = fields.bytes();
  }
  if (fields.broken()) return broken("sparse_csr");
  return sparse;
}

Status add_dimension(std::uint64_t value, TinkerTensor& tensor) {
  if (tensor.shape.size() == kMaxDimensions || value > static_cast<std::uint64_t>(kMaxElements))
    return error(Code::TOO_LARGE, "a tensor's shape is beyond %lld elements or %zu dimensions",
                 static_cast<long long>(kMaxElements), kMaxDimensions);
  tensor.shape.push_back(static_cast<std::int64_t>(value));
  return {};
}

// One number for each time the field comes, or many as one string of varints.
Status read_shape(const ProtoReader& field, TinkerTensor& tensor) {
  if (field.is_varint()) return add_dimension(field.value(), tensor);
  if (!field.is_bytes()) return broken("a tensor's shape");
  std::uint64_t value = 0;
  int shift = 0;
  for (const char c : field.bytes()) {
    const auto byte = static_cast<unsigned char>(c);
    if (shift > 56) return broken("a tensor's shape");
    value |= std::uint64_t{byte & 0x7fU} << shift;
    shift += 7;
    if (byte >= 0x80) continue;
    PLEXRL_TRY(add_dimension(value, tensor));
    value = 0;
    shift = 0;
  }
  return shift == 0 ? Status() : broken("a tensor's shape");
}

Status read_indices(const Json& value, const char* name, std::vector<std::int64_t>& indices) {
  const auto found = value.find(name);
  if (found == value.end() || !found->is_array())
    return error(Code::INVALID_ARGUMENT, "'%s' of a sparse tensor is a list", name);
  for (const Json& element : *found) {
    if (!element.is_number_integer())
      return error(Code::INVALID_ARGUMENT, "'%s' has something else than whole numbers", name);
    indices.push_back(element.get<std::int64_t>());
  }
  return {};
}

Status read_json_values(const Json& data, TinkerTensor& tensor) {
  for (const Json& element : data) {
    const bool good = tensor.whole ? element.is_number_integer() : element.is_number();
    if (!good)
      return error(Code::INVALID_ARGUMENT, "'data' of a tensor has something else than numbers%s",
                   tensor.whole ? " of int64" : "");
    if (tensor.whole) {
      tensor.ints.push_back(element.get<std::int64_t>());
    } else {
      tensor.floats.push_back(element.get<float>());
    }
  }
  return {};
}

Status check_rows(const TinkerTensor& tensor, std::size_t values, std::int64_t width) {
  const auto& rows = tensor.rows;
  bool good = rows.front() == 0 && rows.back() == static_cast<std::int64_t>(values) &&
              tensor.columns.size() == values;
  for (std::size_t i = 1; i < rows.size(); ++i) good = good && rows[i - 1] <= rows[i];
  for (const std::int64_t column : tensor.columns) good = good && column >= 0 && column < width;
  if (good) return {};
  return error(Code::INVALID_ARGUMENT, "the indices of a sparse tensor do not fit its shape");
}

template <class T>
Result<std::vector<T>> dense_of(const TinkerTensor& tensor, const std::vector<T>& values) {
  const auto& shape = tensor.shape;
  if (shape.size() != 2)
    return error(Code::INVALID_ARGUMENT, "a sparse tensor needs a shape of two dimensions");
  if (shape[1] > 0 && shape[0] > kMaxElements / shape[1])
    return error(Code::TOO_LARGE, "a tensor has more than %lld elements",
                 static_cast<long long>(kMaxElements));
  if (tensor.rows.size() != static_cast<std::size_t>(shape[0]) + 1)
    return error(Code::INVALID_ARGUMENT, "a sparse tensor of %lld rows has %zu row indices",
                 static_cast<long long>(shape[0]), tensor.rows.size());
  PLEXRL_TRY(check_rows(tensor, values.size(), shape[1]));
  std::vector<T> dense(static_cast<std::size_t>(shape[0] * shape[1]));
  for (std::size_t row = 0; row + 1 < tensor.rows.size(); ++row)
    for (std::int64_t i = tensor.rows[row]; i < tensor.rows[row + 1]; ++i)
      dense[row * static_cast<std::size_t>(shape[1]) +
            static_cast<std::size_t>(tensor.columns[static_cast<std::size_t>(i)])] =
          values[static_cast<std::size_t>(i)];
  return dense;
}

// One value per position: dimensions of 1 do not count.
template <class T>
Status check_row(const TinkerTensor& tensor, const std::vector<T>& values) {
  if (tensor.shape.empty()) return {};
  std::int64_t elements = 1;
  std::size_t wide = 0;
  for (const std::int64_t dimension : tensor.shape) {
    if (dimension > 0 && elements > kMaxElements / dimension)
      return error(Code::TOO_LARGE, "a tensor has more than %lld elements",
                   static_cast<long long>(kMaxElements));
    elements *= dimension;
    if (dimension > 1) ++wide;
  }
  if (wide > 1)
    return error(Code::UNSUPPORTED, "only tensors of one value per position are possible here");
  if (elements != static_cast<std::int64_t>(values.size()))
    return error(Code::INVALID_ARGUMENT, "a tensor has %zu values and a shape of %lld",
                 values.size(), static_cast<long long>(elements));
  return {};
}

template <class T>
Result<std::vector<T>> row_of(const TinkerTensor& tensor, const std::vector<T>& values) {
  if (!tensor.sparse) {
    PLEXRL_TRY(check_row(tensor, values));
    return values;
  }
  PLEXRL_ASSIGN(std::vector<T> dense, dense_of(tensor, values));
  PLEXRL_TRY(check_row(tensor, dense));
  return dense;
}

Result<std::vector<std::int32_t>> token_row(const TinkerTensor& tensor) {
  if (!tensor.whole) return error(Code::INVALID_ARGUMENT, "int64 is needed");
  PLEXRL_ASSIGN(const std::vector<std::int64_t> row, row_of(tensor, tensor.ints));
  std::vector<std::int32_t> tokens;
  tokens.reserve(row.size());
  for (const std::int64_t token : row) {
    if (token < 0 || token > INT32_MAX)
      return error(Code::INVALID_ARGUMENT, "%lld is no token id", static_cast<long long>(token));
    tokens.push_back(static_cast<std::int32_t>(token));
  }
  return tokens;
}

Result<std::vector<float>> float_row(const TinkerTensor& tensor) {
  if (!tensor.whole) return row_of(tensor, tensor.floats);
  PLEXRL_ASSIGN(const std::vector<std::int64_t> row, row_of(tensor, tensor.ints));
  std::vector<float> values;
  values.reserve(row.size());
  for (const std::int64_t value : row) values.push_back(static_cast<float>(value));
  return values;
}

Status append_tokens(std::string_view chunk, std::vector<std::int32_t>& tokens) {
  ProtoReader fields(chunk);
  while (fields.next()) {
    if (fields.number() == 2 || fields.number() == 3)
      return error(Code::UNSUPPORTED, "'model_input': only chunks of text tokens are possible");
    if (fields.number() != 1) continue;
    if (!fields.is_bytes()) return broken("a chunk of 'model_input'");
    ProtoReader text(fields.bytes());
    while (text.next()) {
      if (text.number() != 1) continue;
      if (!text.is_bytes()) return broken("a chunk of 'model_input'");
      PLEXRL_ASSIGN(const auto more, raw_array<std::int32_t>(text.bytes(), "'tokens'"));
      tokens.insert(tokens.end(), more.begin(), more.end());
    }
    if (text.broken()) return broken("a chunk of 'model_input'");
  }
  return fields.broken() ? broken("a chunk of 'model_input'") : Status();
}

Status read_input(std::string_view entry, TinkerDatum& datum) {
  std::string name;
  std::string_view value;
  ProtoReader fields(entry);
  while (fields.next()) {
    if (fields.number() > 2) continue;
    if (!fields.is_bytes()) return broken("'loss_fn_inputs'");
    if (fields.number() == 1) name = fields.bytes();
    if (fields.number() == 2) value = fields.bytes();
  }
  if (fields.broken()) return broken("'loss_fn_inputs'");
  auto tensor = read_tensor(value);
  if (!tensor) return tensor.error().within("'" + name.substr(0, 64) + "'");
  datum.inputs[name] = *std::move(tensor);
  return {};
}

}  // namespace

Result<TinkerTensor> read_tensor(std::string_view message) {
  TinkerTensor tensor;
  std::string_view dense, sparse;
  std::uint64_t dtype = 0;
  ProtoReader fields(message);
  while (fields.next()) {
    if (fields.number() == 4) {
      PLEXRL_TRY(read_shape(fields, tensor));
    } else if (fields.number() == 3) {
      dtype = fields.value();
    } else if (fields.number() <= 2) {
      if (!fields.is_bytes()) return broken("a tensor");
      tensor.sparse = fields.number() == 2;
      (tensor.sparse ? sparse : dense) = fields.bytes();
    }
  }
  if (fields.broken()) return broken("a tensor");
  if (dtype != kFloat32 && dtype != kInt64)
    return error(Code::UNSUPPORTED, "dtype %llu: float32 and int64 are possible",
                 static_cast<unsigned long long>(dtype));
  tensor.whole = dtype == kInt64;
  if (!tensor.sparse) {
    PLEXRL_TRY(read_values(dense, tensor));
    return tensor;
  }
  PLEXRL_ASSIGN(const SparseBytes parts, read_sparse(sparse));
  PLEXRL_TRY(read_values(parts.values, tensor));
  PLEXRL_ASSIGN(tensor.rows, raw_array<std::int64_t>(parts.rows, "crow_indices"));
  PLEXRL_ASSIGN(tensor.columns, raw_array<std::int64_t>(parts.columns, "col_indices"));
  return tensor;
}

Result<TinkerTensor> read_tensor(const Json& value) {
  if (!value.is_object()) return error(Code::INVALID_ARGUMENT, "a tensor is an object");
  TinkerTensor tensor;
  const auto dtype = value.find("dtype");
  const std::string type =
      dtype != value.end() && dtype->is_string() ? dtype->get<std::string>() : "";
  if (type != "float32" && type != "int64")
    return error(Code::UNSUPPORTED, "'dtype' of a tensor is float32 or int64");
  tensor.whole = type == "int64";
  const auto data = value.find("data");
  if (data == value.end() || !data->is_array())
    return error(Code::INVALID_ARGUMENT, "'data' of a tensor is a list of numbers");
  PLEXRL_TRY(read_json_values(*data, tensor));
  const auto shape = value.find("shape");
  if (shape != value.end() && !shape->is_null()) {
    if (!shape->is_array()) return error(Code::INVALID_ARGUMENT, "'shape' of a tensor is a list");
    for (const Json& element : *shape) {
      if (!element.is_number_unsigned())
        return error(Code::INVALID_ARGUMENT, "'shape' has something else than whole numbers");
      PLEXRL_TRY(add_dimension(element.get<std::uint64_t>(), tensor));
    }
  }
  const auto rows = value.find("sparse_crow_indices");
  if (rows == value.end() || rows->is_null()) return tensor;
  tensor.sparse = true;
  PLEXRL_TRY(read_indices(value, "sparse_crow_indices", tensor.rows));
  PLEXRL_TRY(read_indices(value, "sparse_col_indices", tensor.columns));
  return tensor;
}

Result<TinkerDatum> read_datum(std::string_view message) {
  TinkerDatum datum;
  ProtoReader fields(message);
  while (fields.next()) {
    if (fields.number() > 2) continue;
    if (!fields.is_bytes()) return broken("a datum");
    PLEXRL_TRY(fields.number() == 1 ? append_tokens(fields.bytes(), datum.tokens)
                                    : read_input(fields.bytes(), datum));
  }
  if (fields.broken()) return broken("a datum");
  return datum;
}

Result<std::vector<std::int32_t>> read_chunks(const Json& model_input) {
  const auto chunks = model_input.is_object() ? model_input.find("chunks") : model_input.end();
  if (!model_input.is_object() || chunks == model_input.end() || !chunks->is_array())
    return error(Code::INVALID_ARGUMENT, "'chunks' is a list");
  std::vector<std::int32_t> tokens;
  for (const Json& chunk : *chunks) {
    if (!chunk.is_object()) return error(Code::INVALID_ARGUMENT, "a chunk is an object");
    const auto type = chunk.find("type");
    const bool text = type == chunk.end() || *type == "encoded_text";
    if (!text) return error(Code::UNSUPPORTED, "only chunks of text tokens are possible");
    const auto list = chunk.find("tokens");
    if (list == chunk.end()) return error(Code::INVALID_ARGUMENT, "'tokens' of a chunk is missing");
    PLEXRL_ASSIGN(const auto more, token_ids(*list));
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  return tokens;
}

Result<TinkerDatum> read_datum(const Json& value) {
  if (!value.is_object()) return error(Code::INVALID_ARGUMENT, "a datum is an object");
  TinkerDatum datum;
  const auto input = value.find("model_input");
  if (input == value.end()) return error(Code::INVALID_ARGUMENT, "'model_input' is missing");
  auto tokens = read_chunks(*input);
  if (!tokens) return tokens.error().within("'model_input'");
  datum.tokens = *std::move(tokens);
  const auto inputs = value.find("loss_fn_inputs");
  if (inputs == value.end() || !inputs->is_object())
    return error(Code::INVALID_ARGUMENT, "'loss_fn_inputs' is an object");
  for (const auto& [name, tensor] : inputs->items()) {
    auto read = read_tensor(tensor);
    if (!read) return read.error().within("'" + name.substr(0, 64) + "'");
    datum.inputs[name] = *std::move(read);
  }
  return datum;
}

Result<std::unique_ptr<wire::DatumT>> make_datum(wire::LossKind loss, TinkerDatum datum) {
  auto made = std::make_unique<wire::DatumT>();
  made->tokens = std::move(datum.tokens);
  const bool cross_entropy = loss == wire::LossKind::CrossEntropy;
  bool targets = false;
  for (const auto& [name, tensor] : datum.inputs) {
    std::vector<float>* const row = cross_entropy && name == "weights"       ? &made->weights
                                    : !cross_entropy && name == "logprobs"   ? &made->logprobs
                                    : !cross_entropy && name == "advantages" ? &made->advantages
                                                                             : nullptr;
    Status status;
    if (name == "target_tokens") {
      auto tokens = token_row(tensor);
      status = tokens.status();
      targets = true;
      if (tokens) made->target_tokens = *std::move(tokens);
    } else if (row != nullptr) {
      auto values = float_row(tensor);
      status = values.status();
      if (values) *row = *std::move(values);
    } else {
      status = error(Code::UNSUPPORTED, "this loss has no such input here");
    }
    if (!status.ok()) return status.within("'" + name.substr(0, 64) + "'");
  }
  if (!targets) return error(Code::INVALID_ARGUMENT, "'target_tokens' is missing");
  if (cross_entropy && !datum.inputs.contains("weights"))
    made->weights.assign(made->tokens.size(), 1.0F);
  return made;
}

}  // namespace plexrl::http
